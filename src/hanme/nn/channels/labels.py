"""Label channels: the labels of other nodes averaged along every metapath, SeHGNN's."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hanme.errors import HanmeError
from hanme.nn.cache import GraphCache
from hanme.nn.channels.averages import average_labels, type_paths
from hanme.nn.channels.base import Inputs, Task
from hanme.nn.channels.features import AverageChannels
from hanme.nn.checks import some


class LabelChannels(AverageChannels):
    r"""A channel per sequence of node types back to the target: :math:`(A - \mathrm{diag} A) Y E`.

    The labels that the model may see are averaged step by step towards the root, without the
    root's own. The arguments are those of :class:`FeatureChannels`.
    """

    def __init__(
        self,
        task: Task,
        out_channels: int,
        *,
        hops: int = 2,
        without: Sequence[str] = (),
        dropout: float = 0.0,
    ) -> None:
        paths = type_paths(task.metadata, task.target, hops, without)
        widths = {p: task.labels for p in paths if len(p) > 1 and p[-1] == task.target}
        super().__init__(task, out_channels, "labels", widths, dropout)
        self.labels = task.labels
        self._graph: GraphCache[list[Tensor]] = GraphCache()

    def averages(self, inputs: Inputs) -> list[list[Tensor]]:
        """Return averaged labels."""
        x, links, labels = inputs.x_dict, inputs.edge_index_dict, inputs.labels
        if not self.paths:
            return []
        if labels is None or labels.dim() != 2 or labels.size(1) != self.labels:
            given = "none" if labels is None else list(labels.shape)
            raise HanmeError(
                f"Expected `labels` to be the labels that the model may see, [N, {self.labels}], "
                f"such as Graph.training_labels, but got {given}"
            )
        every = self._graph.get(
            [*links.values(), labels],
            lambda: average_labels(x, links, self.paths, labels),
            [values.size(0) for values in x.values()],
        )
        return [[some(average, inputs.roots)] for average in every]
