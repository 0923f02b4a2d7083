"""Learners that know nothing of the network: a linear model, trees, and smoothing over the graph.

A new feature block is a class in ``blocks.py`` and a line in ``selection.candidate_blocks``, or a
class of another package, see :class:`NamedColumns`.
"""

from hanme.linear.aggregates import Column
from hanme.linear.blocks import BLOCKS, FeatureBlock, NamedColumns, parse_block
from hanme.linear.learner import Contributions, Learner, Part
from hanme.linear.model import LinearModel, WeightedBlock
from hanme.linear.selection import LinearSpec, select_blocks
from hanme.linear.smoothing import Smoothing
from hanme.linear.trees import Trees

__all__ = [
    "BLOCKS",
    "Column",
    "Contributions",
    "FeatureBlock",
    "Learner",
    "LinearModel",
    "LinearSpec",
    "NamedColumns",
    "Part",
    "Smoothing",
    "Trees",
    "WeightedBlock",
    "parse_block",
    "select_blocks",
]
