"""The graphs of the Heterogeneous Graph Benchmark: find or download, check and read them."""

from hanme.data.hgb.dataset import load_hgb

__all__ = ["load_hgb"]
