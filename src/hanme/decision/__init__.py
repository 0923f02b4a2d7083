"""From logits to calibrated probabilities to labels."""

from hanme.decision.calibration import calibrate
from hanme.decision.decision import Costs, Decision
from hanme.decision.quality import Quality, quality
from hanme.decision.rules import RULES, DecisionRule, Fitted

__all__ = [
    "RULES",
    "Costs",
    "Decision",
    "DecisionRule",
    "Fitted",
    "Quality",
    "calibrate",
    "quality",
]
