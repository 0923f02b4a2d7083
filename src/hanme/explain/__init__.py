"""From a prediction back to links and columns, and how far that can be trusted."""

from hanme.explain.explainer import Explainer, explain
from hanme.explain.explanation import Details, Explanation, Instance, Reason
from hanme.explain.fidelity import Fidelity, fidelity
from hanme.explain.picture import save

__all__ = [
    "Details",
    "Explainer",
    "Explanation",
    "Fidelity",
    "Instance",
    "Reason",
    "explain",
    "fidelity",
    "save",
]
