"""Classify the nodes of heterogeneous graphs by attending to whole metapath instances.

>>> graph = hanme.Graph.from_tables("films")
>>> classifier = hanme.Classifier().fit(graph)
>>> classifier.predict(nodes=["Inception"])

Packages, in the order in which data flows through them: :mod:`hanme.data`, :mod:`hanme.graph`,
:mod:`hanme.ops`, :mod:`hanme.nn`, :mod:`hanme.training`, :mod:`hanme.runs`, :mod:`hanme.explain`,
:mod:`hanme.experiments`, :mod:`hanme.cli`.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from hanme.common.cpus import affinity, cpus

if TYPE_CHECKING:
    from hanme.auditing import audit
    from hanme.estimator import Classifier
    from hanme.graph import Graph

__all__ = ["Classifier", "Graph", "__version__", "audit"]

__version__ = "0.3.0"

# The threads of OpenMP (PyTorch, XGBoost and scikit-learn each bring a library of their own) wait
# for more work by spinning, on cores that the walks of hanme.ops.streaming or another process need.
# Read when each library is first imported: import hanme before them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if (_cpus := cpus()) < affinity():  # OpenMP counts the cores itself, but knows no quotas
    os.environ.setdefault("OMP_NUM_THREADS", str(_cpus))

# PyTorch says these once per process to whoever makes a sparse tensor; features are sparse here.
warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled", UserWarning)


def __getattr__(name: str) -> Any:
    """Import ``hanme.Graph``, ``hanme.Classifier`` and ``hanme.audit`` on first use."""
    if name == "audit":
        from hanme.auditing import audit

        return audit
    if name == "Classifier":
        from hanme.estimator import Classifier

        return Classifier
    if name == "Graph":
        from hanme.graph import Graph

        return Graph
    raise AttributeError(f"module 'hanme' has no attribute {name!r}")
