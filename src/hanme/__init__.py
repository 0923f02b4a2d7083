"""Classify the nodes of heterogeneous graphs by attending to whole metapath instances.

The parts, in the order in which data goes through them: :mod:`hanme.datasets`,
:mod:`hanme.metapath`, :mod:`hanme.chain`, :mod:`hanme.ops`, :mod:`hanme.nn`,
:mod:`hanme.training`, :mod:`hanme.explain`, :mod:`hanme.experiments`, :mod:`hanme.cli`.
All of it in a few lines: :class:`hanme.Graph`.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hanme.api import Classifier, Graph

__all__ = ["Classifier", "Graph"]

# PyTorch's threads wait for more work by spinning, for milliseconds, on cores that the walks of
# hanme.ops.streaming need. Read when PyTorch is first imported: import hanme before it.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

# PyTorch says these once per process to whoever makes a sparse tensor; features are sparse here.
warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled", UserWarning)


def __getattr__(name: str) -> Any:
    """``hanme.Graph`` and ``hanme.Classifier``, imported when they are first asked for."""
    if name in __all__:
        from hanme import api

        return getattr(api, name)
    raise AttributeError(f"module 'hanme' has no attribute {name!r}")
