"""What if links were others: the same as a forward on the whole graph with other links."""

from dataclasses import replace

import pytest
import torch

from hanme.data import planted
from hanme.explain import Explainer
from hanme.explain.change import Link, WhatIf
from hanme.graph import Graph
from hanme.nn import HANME
from hanme.nn.batch import Batch
from hanme.training import draw_weights, fit_wide, wide_part
from hanme.training.fit import fill_wide
from hanme.training.wide import Mixture, Wide

BLOCKS = ["features:plain", "movie-actor:ids:unit", "movie-actor-movie:labels:plain"]
TO = {kind: ("movie", "to", kind) for kind in ("actor", "director")}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return planted(movies=80, genres=3)


@pytest.fixture(scope="module")
def model(graph: Graph) -> HANME:
    """One whose wide part reads the labels of other movies, too."""
    options = {"hidden_channels": 8, "heads": 2, "blocks": BLOCKS}
    made = HANME(graph.metadata(), "movie", graph.metapaths, 3, **options)
    draw_weights(made, graph, seed=1)
    part, mixture = wide_part(made), Mixture(scales=[1, 1, 1], strength=1, loss=1)
    wide = Wide(blocks=BLOCKS, mixtures=[mixture])
    assert part is not None
    fill_wide(part, graph, fit_wide(part, graph, wide, [graph.split.train])[0, 0])
    return made.eval()


@pytest.mark.parametrize("kept", [0, 1])
def test_links_can_go_where_labels_are_read_and_all_of_them(
    graph: Graph, model: HANME, kept: int
) -> None:
    opened, node = Explainer(model, graph).open, 3
    remove, links = [], dict(graph.links)
    for kind, e in TO.items():
        pairs = graph.links[e]
        gone = (pairs[0] == node) & (torch.arange(pairs.size(1)) >= kept * pairs.size(1) // 2)
        remove += [Link(e, node, end) for end in pairs[1, gone].tolist()]
        links[e], links[kind, "to", "movie"] = pairs[:, ~gone], pairs[:, ~gone].flip(0)
    found, left = WhatIf(opened, graph).logits(node, remove=remove)
    changed = replace(graph, links=links)
    held = torch.tensor(opened.beta)
    model.fusion.forward = lambda z: torch.einsum("p,pnc->nc", held, torch.stack(list(z)))
    with torch.no_grad():
        expected = model(Batch.of(changed))[node]
    del model.fusion.forward
    torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-4)
    assert (left == 0) == (kept == 0)
