"""From logits to calibrated probabilities to labels."""

from hanme.decision.calibration import Crossed, calibrate, cross_calibrate, shrinkage, weighted_sum
from hanme.decision.decision import Costs, Decision
from hanme.decision.quality import Quality, quality
from hanme.decision.rules import RULES, DecisionRule, Fitted

__all__ = [
    "RULES",
    "Costs",
    "Crossed",
    "Decision",
    "DecisionRule",
    "Fitted",
    "Quality",
    "calibrate",
    "cross_calibrate",
    "quality",
    "shrinkage",
    "weighted_sum",
]
