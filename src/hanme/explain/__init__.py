"""From a prediction back to metapath instances, and how far that can be trusted."""

from hanme.explain.explainer import By, Explainer, explain
from hanme.explain.explanation import Explanation, Instance
from hanme.explain.fidelity import Fidelity, fidelity
from hanme.explain.picture import save

__all__ = [
    "By",
    "Explainer",
    "Explanation",
    "Fidelity",
    "Instance",
    "explain",
    "fidelity",
    "save",
]
