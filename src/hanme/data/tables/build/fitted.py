"""What a run has fitted to its tables besides its weights: ``features.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from hanme.common.options import Closed
from hanme.data.tables.build.features import Fitted
from hanme.data.tables.schema.config import GraphConfig
from hanme.errors import HanmeError
from hanme.graph import EdgeType


class FittedGraph(Closed):
    """The schema of the graph that a run was trained on, and what was fitted to its columns."""

    target: str  # the node type that the run classifies
    labels: list[str]  # the labels, in the order of the model's outputs
    multilabel: bool  # whether a node may have several
    relations: list[EdgeType]  # the edge types, in the order of the graph
    # what each feature column of each node type needs to become features
    features: dict[str, dict[str, Fitted]]
    trained_on: str  # the digest of the target's ids, labels and split
    # columns that are not used, as they give the label away; TYPE.COLUMN if not of the target
    leaks: list[str] = Field(default=[])
    # the number of features of each node type, with those that were filled in
    widths: dict[str, int] = Field(default={})

    @classmethod
    def make(cls, values: Any, where: str) -> FittedGraph:
        """Check values that were read from `where`."""
        try:
            return cls.model_validate(values)
        except ValidationError:
            raise HanmeError(f"{where}: not the features of a run") from None

    def learnt(self) -> dict[str, Any]:
        """Return all but the widths, as JSON holds it."""
        exclude = {"widths"} if self.leaks else {"widths", "leaks"}
        return self.model_dump(mode="json", exclude=exclude)

    def fit_to(self, config: GraphConfig, path: Path) -> GraphConfig:
        """Put types and relations of a ``graph.toml`` in the order of the run's weights.

        Raises:
            HanmeError: If the graph has another schema than the run.
        """
        target, types = config.nodes[config.target], config.node_types
        several = target.label_separator is not None if target.label else self.multilabel
        edge_types = [e for pair in config.edge_types.values() for e in pair]
        pairs: dict[str, Any] = {
            "target": (config.target, self.target),
            "relations": tuple(sorted(map("-".join, e)) for e in (edge_types, self.relations)),
            "node types": (sorted(types), sorted(self.features)),
            "several labels per node": (several, self.multilabel),
        }
        for kind in types.keys() & self.features.keys():
            new = {
                c: spec.kind.replace("text", spec.method)
                for c, spec in types[kind].features.items()
                if config.column_name(kind, c) not in self.leaks
            }
            run = {column: fitted.kind for column, fitted in self.features[kind].items()}
            pairs[f"features of {kind}"] = (new, run)
        for key, (new, run) in pairs.items():
            if new != run:
                raise HanmeError(
                    f"{path}: its schema is not that of the run: {key}: {new}, but the run was "
                    f"trained with {run}"
                )
        there = {name: there for name, (there, _) in config.edge_types.items()}
        names = sorted(config.relations, key=lambda name: self.relations.index(there[name]))
        relations = {name: config.relations[name] for name in names}
        nodes = {kind: types[kind] for kind in self.features}
        return config.model_copy(update={"nodes": nodes, "relations": relations})
