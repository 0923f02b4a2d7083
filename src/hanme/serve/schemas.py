"""What the API takes and gives, as its OpenAPI document says it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hanme.common.options import Closed
from hanme.serve.search import Match

Split = Literal["train", "val", "test", "unused", "unlabelled"]
Number = Annotated[int, Field(ge=0, lt=2**53)]


def writable(text: str) -> str:
    """Replace what UTF-8 cannot write: halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")


Text = Annotated[str, AfterValidator(writable)]


class Shape(BaseModel):
    """Base class of what is given."""

    model_config = ConfigDict(frozen=True)


class Problem(Shape):
    """What went wrong, in one line."""

    error: Text


class Work(Shape):
    """The explanations that the server is at, and has been."""

    running: int
    waiting: int
    done: int
    stopped: int


class Health(Shape):
    """That the server is there, and what it takes."""

    status: Literal["ok"]
    version: str
    seconds: float
    memory_mb: float
    explanations: Work


class Label(Shape):
    """A label: the least probability to be given it, and how many nodes have it."""

    name: Text
    threshold: float | None
    given: int


class RunInfo(Shape):
    """A run: what was trained on what."""

    name: Text
    model: Text
    graph: Text
    target: Text
    nodes: int
    multilabel: bool
    grown: bool = Field(description="Whether the tables have changed since it was trained.")
    explains: bool
    why_not: Text
    labels: list[Label]
    rule: str
    epochs: int
    best_epoch: int


class RunList(Shape):
    """All runs that are served."""

    runs: list[RunInfo]


class Score(Shape):
    """F1 in percent, with 95 % intervals over nodes where they are known."""

    name: Literal["model", "linear", "majority"]
    micro: float
    macro: float
    micro_interval: tuple[float, float] | None
    macro_interval: tuple[float, float] | None


class Bin(Shape):
    """A bin of the reliability diagram."""

    count: int
    said: float
    seen: float


class Confusion(Shape):
    """Which labels are mistaken for which.

    A row is a label that nodes have, a column one that they were given. With several labels per
    node, the diagonal counts the nodes that have a label and were given it, and the rest those that
    have a label, were not given it, and were given another that they have not.
    """

    labels: list[Text]
    counts: list[list[int]]


class ByLabel(Shape):
    """How well one label is predicted."""

    label: Text
    nodes: int
    given: int
    precision: float
    recall: float
    f1: float


class ByDegree(Shape):
    """How well nodes with so many links are predicted."""

    least: int
    most: int
    nodes: int
    micro: float


class MetapathCount(Shape):
    """A metapath, its instances, and how many nodes have some."""

    metapath: Text
    instances: int
    roots: int


class MetapathWeight(MetapathCount):
    """A metapath of the model with its weight β."""

    weight: float | None


class PartSize(Shape):
    """A part of the model and how far it moves logits: the mean absolute value."""

    name: Text
    size: float


class Overview(Shape):
    """How good a run is, and where it is weak."""

    part: Literal["test", "val", ""]
    nodes: int
    scores: list[Score]
    brier: float | None
    calibration_error: float | None
    reliability: list[Bin]
    confusion: Confusion
    by_label: list[ByLabel]
    by_degree: list[ByDegree]
    metapaths: list[MetapathWeight]
    slopes: dict[str, float]
    parts: list[PartSize]


class Metrics(Shape):
    """The rows of ``metrics.jsonl``."""

    best_epoch: int
    epochs: list[dict[str, float]]


class NodeType(Shape):
    """A node type."""

    type: Text
    nodes: int
    features: int


class Relation(Shape):
    """A relation; ``reverse`` holds the same links the other way round."""

    relation: Text
    source: Text
    target: Text
    links: int
    reverse: Text | None


class GraphInfo(Shape):
    """What is in the graph of a run."""

    target: Text
    types: list[NodeType]
    relations: list[Relation]
    metapaths: list[MetapathCount]
    split: dict[str, int]
    labelled: int
    notes: list[Text]


class NodeRef(Shape):
    """A node: its type and number, its id in the user's tables, its name."""

    type: Text
    number: int
    id: Text
    name: Text


class Hit(NodeRef):
    """A node that a search has found."""

    match: Match


class Hits(Shape):
    """What a search has found, best first."""

    nodes: list[Hit]


class Target(Shape):
    """A target node: what it was used for, and the labels it has."""

    node: int
    id: Text
    name: Text
    split: Split | None
    labels: list[Text]


class Said(Shape):
    """What a model says of a node."""

    predicted: list[Text]
    probabilities: list[float]


class Prediction(Said, Target):
    """What the model says of a target node.

    ``uncertainty`` is the entropy of the probabilities and ``surprise`` the negative logarithm of
    the probability of the labels it has, both in bits.
    """

    wrong: bool | None
    uncertainty: float
    surprise: float | None
    degree: int


class Predictions(Shape):
    """A page of predictions."""

    total: int
    offset: int
    rows: list[Prediction]


class Neighbour(NodeRef):
    """A node at the other end of a link; of a target node, also what the model says."""

    predicted: list[Text] | None
    wrong: bool | None


class Neighbours(Shape):
    """The nodes that a relation leads to: how many, and the first of them."""

    relation: Text
    type: Text
    count: int
    nodes: list[Neighbour]


class NodeInfo(NodeRef):
    """A node of any type with its links."""

    links: list[Neighbours]
    prediction: Prediction | None


class Nodes(Closed):
    """Target nodes by id or name."""

    nodes: list[Annotated[str, Field(max_length=10_000)]] = Field(min_length=1, max_length=200)


class MetapathPart(Shape):
    """What the instances of a metapath add to the label's logit."""

    metapath: Text
    weight: float
    instances: int
    part: float


class InstanceInfo(Shape):
    """A metapath instance, root first: its attention, its part of the logit and its move."""

    metapath: Text
    nodes: list[NodeRef]
    attention: float
    hops: list[float]
    part: float
    move: float


class Other(Shape):
    """What else is added to the label's logit."""

    name: Text
    part: float


class ReasonInfo(Shape):
    """A linked node or a feature, and its contribution to the logit."""

    block: Text
    what: Text
    node: NodeRef | None
    part: float


class ExplanationInfo(Shape):
    """Why a node got, or did not get, a label; all parts add up to the logit.

    With ``against``, logit, parts and moves are differences to those of that label.
    """

    node: int
    id: Text
    name: Text
    label: Text
    against: Text | None
    by: Literal["part", "move", "attention"]
    logit: float
    probability: float
    predicted: list[Text]
    metapaths: list[MetapathPart]
    instances: list[InstanceInfo]
    others: list[Other]
    reasons: list[ReasonInfo]


class InstanceRef(Closed):
    """An instance: its metapath and the numbers of its nodes, root first."""

    metapath: Annotated[str, Field(max_length=1000)]
    nodes: list[Number] = Field(min_length=2, max_length=20)


class LinkRef(Closed):
    """A link: its relation and the numbers of its two nodes."""

    relation: Annotated[str, Field(max_length=1000)]
    source: Number
    target: Number


class Changes(Closed):
    """What to take away from the graph or to add to it, for one node."""

    instances: list[InstanceRef] = Field(default=[], max_length=200)
    remove: list[LinkRef] = Field(default=[], max_length=200)
    add: list[LinkRef] = Field(default=[], max_length=200)


class Outcome(Said):
    """What the model says of a node as it is, or after a change."""

    logits: list[float]


class BeforeAfter(Shape):
    """How many instances a node has before and after a change."""

    before: int
    after: int


class Changed(Shape):
    """What the model says of a node before and after a change."""

    before: Outcome
    after: Outcome
    instances: BeforeAfter


class Difference(Target):
    """What two runs say of a node; ``distance`` is the largest difference of a probability."""

    a: Said
    b: Said
    distance: float


class Comparison(Shape):
    """Where two runs differ."""

    part: Literal["test", "val", ""]
    nodes: int
    both_right: int
    a_right: int
    b_right: int
    both_wrong: int
    differ: int
    total: int
    offset: int
    rows: list[Difference]
