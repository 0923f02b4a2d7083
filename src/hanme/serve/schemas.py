"""The requests and responses of the API, from which its OpenAPI document is generated."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hanme.common.options import Closed
from hanme.explain import By
from hanme.serve.search import Match

Split = Literal["train", "val", "test", "unused", "unlabelled"]
Number = Annotated[int, Field(ge=0, lt=2**53)]


def writable(text: str) -> str:
    """Replace what UTF-8 cannot write: halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")


Text = Annotated[str, AfterValidator(writable)]


class Shape(BaseModel):
    """Base class of responses."""

    model_config = ConfigDict(frozen=True)


class Problem(Shape):
    """An error in one line."""

    error: Text


class Health(Shape):
    """State of the server."""

    status: Literal["ok"]
    version: str
    seconds: float
    memory_mb: float
    explanations: dict[str, int] = Field(description="By state: running, waiting, done, stopped.")


class Label(Shape):
    """A label, its threshold, and the number of nodes that have it."""

    name: Text
    threshold: float | None
    given: int


class RunInfo(Shape):
    """A run: model, graph and labels."""

    name: Text
    model: Text
    graph: Text
    target: Text
    nodes: int
    multilabel: bool
    differs_from_training: bool = Field(
        description="Whether ids, labels or split of the tables have changed since training."
    )
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
    """How well nodes with a number of links in a range are predicted."""

    least: int
    most: int
    nodes: int
    micro: float


class MetapathInfo(Shape):
    """A metapath, its instances, the nodes with instances, and its weight β in the model."""

    metapath: Text
    instances: int
    roots: int
    weight: float | None


class Overview(Shape):
    """How good a run is, and where it is weak."""

    part: Literal["test", "val", ""]
    nodes: int
    scores: list[Score]
    brier: float | None
    calibration_error: float | None
    reliability: list[tuple[int, float, float]] = Field(
        description="Bins: count, mean probability, share of labels."
    )
    confusion: Confusion
    by_label: list[ByLabel]
    by_degree: list[ByDegree]
    metapaths: list[MetapathInfo]
    slopes: dict[str, float]
    parts: dict[Text, float] = Field(description="Mean absolute contribution to a logit.")


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
    metapaths: list[MetapathInfo]
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
    """Nodes that a search has found, best first."""

    nodes: list[Hit]


class Target(Shape):
    """A target node: what it was used for, and the labels it has."""

    node: int
    id: Text
    name: Text
    split: Split | None
    labels: list[Text]


class Said(Shape):
    """Predicted labels and probabilities of a node."""

    predicted: list[Text]
    probabilities: list[float]


class Prediction(Said, Target):
    """The prediction of a target node.

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
    """A node at the other end of a link; of a target node, also its prediction."""

    predicted: list[Text] | None
    wrong: bool | None


class Neighbours(Shape):
    """The nodes that a relation leads to: their number, and the first of them."""

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
    """What the instances of a metapath add to the logit of the label."""

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


class ReasonInfo(Shape):
    """A node or a feature, and what it adds to the logit through the linear part."""

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
    by: By
    logit: float
    probability: float
    predicted: list[Text]
    metapaths: list[MetapathPart]
    instances: list[InstanceInfo]
    others: dict[Text, float] = Field(description="What else is added to the logit.")
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
    """What to remove from the graph or to add to it, for one node."""

    instances: list[InstanceRef] = Field(default=[], max_length=200)
    remove: list[LinkRef] = Field(default=[], max_length=200)
    add: list[LinkRef] = Field(default=[], max_length=200)


class Outcome(Said):
    """The prediction of a node, and the number of its instances."""

    logits: list[float]
    instances: int


class Changed(Shape):
    """The prediction of a node before and after a change."""

    before: Outcome
    after: Outcome


class Difference(Target):
    """The predictions of two runs; ``distance`` is the largest difference of a probability."""

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
