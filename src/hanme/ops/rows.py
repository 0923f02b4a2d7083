"""Rows of features, dense or sparse, at the cost of the rows taken."""

import torch
from torch import Tensor

from hanme.chain import stretches


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of a dense or sparse CSR matrix, in the order given and in its layout.

    Args:
        x: ``[N, ...]``, or ``[N, F]`` if sparse; only a dense one passes gradients on.
        rows: Which rows, ``[R]``.
    """
    if x.layout == torch.strided:
        return x.index_select(0, rows)
    indptr = x.crow_indices()
    begin = indptr[rows]
    counts = indptr[rows + 1] - begin
    places, _ = stretches(begin, counts)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    columns, values = x.col_indices()[places], x.values()[places]
    return torch.sparse_csr_tensor(starts, columns, values, (rows.numel(), x.size(1)))
