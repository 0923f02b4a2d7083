"""Projections read dense and sparse features, and some rows of them."""

import numpy as np
import pytest
import torch
from scipy.sparse import random_array

from hanme.common.arrays import take_rows


@pytest.mark.parametrize("rows", [[], [3], [5, 0, 5, 2]])
def test_rows_of_dense_and_sparse_features(rows: list[int]) -> None:
    matrix = random_array((6, 9), density=0.3, rng=np.random.default_rng(0), format="csr")
    dense = torch.from_numpy(matrix.toarray())
    sparse = dense.to_sparse_csr()
    chosen = torch.tensor(rows, dtype=torch.long)
    assert torch.equal(take_rows(dense, chosen), dense[chosen])
    got = take_rows(sparse, chosen)
    assert got.layout == torch.sparse_csr
    assert torch.equal(got.to_dense(), dense[chosen])
    assert got.crow_indices().tolist() == matrix[rows].indptr.tolist()
