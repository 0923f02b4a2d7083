"""Classify the nodes of heterogeneous graphs by attending to whole metapath instances.

The parts, in the order in which data goes through them: :mod:`hanme.datasets`,
:mod:`hanme.metapath`, :mod:`hanme.chain`, :mod:`hanme.ops`, :mod:`hanme.nn`,
:mod:`hanme.training`, :mod:`hanme.explain`, :mod:`hanme.experiments`, :mod:`hanme.cli`.
"""

import warnings

# PyTorch says these once per process to whoever makes a sparse tensor; features are sparse here.
warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled", UserWarning)
