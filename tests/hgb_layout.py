"""Write a planted graph in the files of the Heterogeneous Graph Benchmark.

There, test labels can be changed without touching anything else.
"""

from __future__ import annotations

import json
from pathlib import Path

from hanme.graph import Graph


def write_imdb(graph: Graph, folder: Path, *, scramble_test: bool = False) -> Path:
    """Write a graph as the benchmark's IMDB.

    ``scramble_test`` gives every test node the labels of another.
    """
    types = graph.node_types
    sizes = list(graph.sizes.values())
    first = {kind: sum(sizes[:i]) for i, kind in enumerate(types)}
    links = {str(i): edge for i, edge in enumerate(graph.edge_types)}
    info = {
        "node.dat": {"node type": {str(i): t for i, t in enumerate(types)}},
        "link.dat": {
            "link type": {
                i: {"start": types.index(a), "end": types.index(b), "meaning": f"{a}->{b}"}
                for i, (a, _, b) in links.items()
            }
        },
        "label.dat": {"node type": {"0": {str(i): n for i, n in enumerate(graph.labels)}}},
    }
    nodes = []
    for number, kind in enumerate(types):
        for i, row in enumerate(graph.x_dict[kind].to_dense().tolist()):
            words = "\t" + ",".join(f"{value:g}" for value in row) if kind == "movie" else ""
            nodes.append(f"{first[kind] + i}\t{kind} {i}\t{number}{words}\n")
    rows = []
    for number, (a, _, b) in links.items():
        for u, v in graph.links[links[number]].t().tolist():
            rows.append(f"{first[a] + u}\t{first[b] + v}\t{number}\t1\n")
    labels = [",".join(str(i) for i, y in enumerate(row) if y) for row in graph.y.tolist()]
    test = graph.split.test.nonzero().flatten().tolist()
    given = graph.split.labelled.nonzero().flatten().tolist()
    tested = [labels[i] for i in (test[1:] + test[:1] if scramble_test else test)]
    folder.mkdir(parents=True)
    files = {
        "info.dat": json.dumps(info),
        "node.dat": "".join(nodes),
        "link.dat": "".join(rows),
        "label.dat": "".join(f"{i}\tmovie {i}\t0\t{labels[i]}\n" for i in given),
        "label.dat.test": "".join(
            f"{i}\tmovie {i}\t0\t{label}\n" for i, label in zip(test, tested, strict=True)
        ),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
