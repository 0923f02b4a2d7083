"""From logits to calibrated probabilities to labels."""

from hanme.decision.calibration import calibrate
from hanme.decision.decision import RULES, Decision, Rule
from hanme.decision.quality import Quality, quality

__all__ = ["RULES", "Decision", "Quality", "Rule", "calibrate", "quality"]
