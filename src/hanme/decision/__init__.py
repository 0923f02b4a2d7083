"""From logits to calibrated probabilities to labels."""

from hanme.decision.calibration import calibrate
from hanme.decision.decision import RULES, Costs, Decision, Rule
from hanme.decision.quality import Quality, quality

__all__ = ["RULES", "Costs", "Decision", "Quality", "Rule", "calibrate", "quality"]
