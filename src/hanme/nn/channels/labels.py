"""Label channels: the labels of other nodes averaged along every metapath, SeHGNN's."""

from __future__ import annotations

from torch import Tensor

from hanme.errors import HanmeError
from hanme.nn.batch import Batch
from hanme.nn.channels.averages import TypePath, average_labels
from hanme.nn.channels.base import Task
from hanme.nn.channels.features import AverageChannels
from hanme.nn.checks import some


class LabelChannels(AverageChannels):
    r"""A channel per sequence of node types back to the target: :math:`(A - \mathrm{diag} A) Y E`.

    The labels that the model may see are averaged step by step towards the root, without the
    root's own.
    """

    what = "labels"

    @staticmethod
    def widths(task: Task, paths: list[TypePath]) -> dict[TypePath, int]:
        """Return the sequences that return to the target, and the number of labels."""
        return {p: task.labels for p in paths if len(p) > 1 and p[-1] == task.target}

    def averages(self, batch: Batch) -> list[list[Tensor]]:
        """Return averaged labels."""
        x, links, labels = batch.x_dict, batch.edge_index_dict, batch.labels
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
            lambda: [[y] for y in average_labels(x, links, self.paths, labels)],
            tuple(values.size(0) for values in x.values()),
        )
        return [[some(average, batch.roots)] for (average,) in every]
