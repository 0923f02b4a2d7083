"""Requests and responses of the API, from which its OpenAPI document is generated.

Descriptions of a run and comparisons are plain JSON objects instead.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from hanme.common.options import Closed

Split = Literal["train", "val", "test", "unused", "unlabelled"]
Number = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, Field(max_length=1000)]
Cellable = Annotated[str, Field(max_length=10_000)] | float | None
Limit = Annotated[int, Field(ge=1, le=500, description="Maximum number of rows.")]


class Filter(Closed):
    """Which predictions to list, and in which order."""

    filter: Literal["all", "wrong", "right", "labelled", "unlabelled", "confident", "review"] = (
        Field(default="all", description="confident and review: unlabelled nodes.")
    )
    predicted: Text = Field(default="", description="Nodes predicted to have this label.")
    true: Text = Field(default="", description="Nodes that have this label.")
    split: Split | Literal[""] = Field(default="", description="Nodes of this part.")
    where: list[Text] = Field(
        default=[], max_length=20, description="COLUMN=VALUE: nodes with this value."
    )
    q: str = Field(default="", max_length=200, description="Nodes whose name or id holds this.")
    sort: Literal["", "number", "name", "uncertain", "surprising", "probability", "degree"] = Field(
        default="", description="Default: best match of `q` first."
    )
    of: Text = Field(
        default="", description="The label whose probability to sort by (default: the likeliest)."
    )
    descending: bool | None = Field(default=None, description="Default: except number and name.")
    offset: Number = Field(default=0, description="Number of rows to skip.")
    limit: Limit = 50
    format: Literal["", "json", "csv"] = Field(
        default="",
        description="Default: by the Accept header, else JSON. CSV has all rows.",
    )


class Question(Closed):
    """What to explain."""

    label: Text = Field(default="", description="Default: the most likely label.")
    instances: int = Field(default=20, ge=1, le=200, description="Maximum number of instances.")


class Nodes(Closed):
    """Target nodes by id or name."""

    nodes: list[Annotated[str, Field(max_length=10_000)]] = Field(min_length=1, max_length=200)


class LinkRef(Closed):
    """A link: its relation and the numbers of its two nodes."""

    relation: Text
    source: Number
    target: Number


class Changes(Closed):
    """What to remove from the graph or to add to it, for one node, and other cells of its row."""

    remove: list[LinkRef] = Field(default=[], max_length=200)
    add: list[LinkRef] = Field(default=[], max_length=200)
    columns: dict[Text, Cellable] = Field(default={}, max_length=200)


class Answer(Closed):
    """What a person says of a prediction."""

    node: Number
    action: Literal["confirm", "correct", "skip"]
    labels: list[Text] = Field(
        default=[], max_length=1000, description="The right labels; confirm: the predicted ones."
    )


class NewRow(Closed):
    """A row that is in no table: its cells by column, and its links to known nodes.

    Links are named by relation, or by node type where it has one relation; a node by its id or
    name, or by its number.
    """

    columns: dict[Text, Cellable] = Field(default={}, max_length=200)
    links: dict[Text, list[Annotated[str, Field(max_length=10_000)] | Number]] = Field(
        default={}, max_length=200
    )


ToExplain = Annotated[
    Number | None,
    Field(description="The row to explain, from 0 (default: the first 10); others have null."),
]


class NewRows(Closed):
    """Rows to predict without training."""

    rows: list[NewRow] = Field(min_length=1, max_length=100)


class Problem(BaseModel):
    """An error in one line."""

    error: str


class NodeRef(BaseModel):
    """A node: its type and number, its id in the user's tables, its name.

    Of a target node, also its known and predicted labels, and whether these are wrong where that
    is known.
    """

    type: str
    number: int
    id: str
    name: str
    labels: list[str] | None
    predicted: list[str] | None
    wrong: bool | None


class Prediction(BaseModel):
    """The prediction of a target node.

    ``uncertainty`` is the entropy of the probabilities and ``surprise`` the negative logarithm of
    the probability of the labels it has, both in bits.
    """

    node: int
    id: str
    name: str
    split: Split | None
    labels: list[str]
    predicted: list[str]
    probabilities: list[float]
    wrong: bool | None
    uncertainty: float
    surprise: float | None
    degree: int


class ReviewInfo(BaseModel):
    """The state of a review: where answers are kept, their number, and what to ask about next.

    ``command`` trains with the answers, and so does ``POST /runs/{run}/train``.
    """

    file: str
    command: str
    answered: dict[str, int] = Field(description="Answered nodes by action.")
    left: int
    rows: list[Prediction]


class ValueCount(BaseModel):
    """A value of a facet, and the number of nodes that have it."""

    value: str
    count: int


class FacetInfo(BaseModel):
    """Nodes by value; ``key`` is the parameter that filters by it, for ``where`` with a column."""

    key: str
    column: str
    values: list[ValueCount]


class Predictions(BaseModel):
    """A page of predictions, the number of all, and counts of all by facet."""

    total: int
    rows: list[Prediction]
    facets: list[FacetInfo] = []


class Neighbour(NodeRef):
    """A linked node; ``known`` counts the known labels of the other nodes that it links to."""

    known: dict[str, int]


class Neighbours(BaseModel):
    """The nodes that a relation leads to: their number, and the first of them."""

    relation: str
    type: str
    count: int
    nodes: list[Neighbour]


class Cell(BaseModel):
    """A cell of the row behind a node; ``kind`` is how a model reads it, if it does."""

    column: str
    title: str
    unit: str
    value: str | None
    kind: str | None


class NodeInfo(NodeRef):
    """A node of any type with the cells of its row and its links."""

    columns: list[Cell]
    links: list[Neighbours]
    prediction: Prediction | None


class ReasonInfo(BaseModel):
    """A link or a column, with its evidence and what it adds to the logit.

    ``without`` is the probability of the label without it, if that was computed, ``step`` the
    probability once it is added to the base rate and all reasons before it.
    """

    kind: Literal["link", "column"]
    text: str
    evidence: str
    contribution: float
    without: float | None
    estimated: bool
    step: float
    node: NodeRef | None
    column: str | None


class ExplanationInfo(BaseModel):
    """Why a node got, or did not get, a label; base and reasons add up to the logit.

    ``start`` is the probability that the base alone gives.
    """

    node: int
    label: str
    sentence: str
    probability: float
    base: float
    base_rate: float
    start: float
    reasons: list[ReasonInfo]
    details: dict[str, Any] = Field(
        description="How the model computes the logit: by metapath, other part and instance."
    )


class NewPrediction(BaseModel):
    """The prediction of a new row, and why; the numbers of new nodes follow those of the graph.

    ``notes`` name the columns and values of the row that the model does not know.
    """

    prediction: Prediction
    explanation: ExplanationInfo | None
    notes: list[str]


class Outcome(BaseModel):
    """The prediction of a node."""

    logits: list[float]
    probabilities: list[float]
    predicted: list[str]


class Effect(BaseModel):
    """What a single change does: the probability of the label after it, and the labels then."""

    remove: LinkRef | None = None
    column: str | None = None
    value: str | None = None
    text: str
    probability: float
    predicted: list[str]
    flips: bool


class Effects(BaseModel):
    """Single changes of a node; first the smallest that flips its labels, if one does."""

    label: str
    probability: float
    predicted: list[str]
    effects: list[Effect]
