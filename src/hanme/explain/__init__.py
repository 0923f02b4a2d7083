"""From a prediction back to metapath instances, and how far that can be trusted."""

from hanme.explain.explainer import By, Explainer, explain
from hanme.explain.explanation import Explanation, Fidelity, Instance, Step
from hanme.explain.fidelity import fidelity
from hanme.explain.picture import save

__all__ = [
    "By",
    "Explainer",
    "Explanation",
    "Fidelity",
    "Instance",
    "Step",
    "explain",
    "fidelity",
    "save",
]
