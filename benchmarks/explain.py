"""Seconds of CPU that explanations on IMDB take: what all nodes share, and a node.

    python benchmarks/explain.py [METAPATH ...]    # by default the paper's two

The model is HAN-ME with the multihop encoder, 8 heads of 16, not trained: times do not depend on
the weights. Prints a line of JSON: for an ``Explainer``, for a movie (the median of 50) and for the
movie with the most instances.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

from hanme.data import METAPATHS, load
from hanme.explain import Explainer
from hanme.nn import HANME
from hanme.training import build_seeded


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return round(time.process_time() - began, 3)


def main() -> None:
    data = load("IMDB")
    metapaths = sys.argv[1:] or METAPATHS["IMDB"]
    labels = len(data.labels)
    model, _ = build_seeded(
        lambda: HANME(data.metadata(), "movie", metapaths, labels, hidden_channels=128, heads=8),
        data,
        seed=1,
    )
    explainer = Explainer(model, data)  # warm: compiled code loaded, structures made
    counts = sum(path.problem.chain.count() for path in explainer.open.paths.values())
    largest = int(counts.argmax())
    movies = range(0, len(counts), len(counts) // 50)
    found = {
        "metapaths": metapaths,
        "explainer": seconds(lambda: Explainer(model, data)),
        "movie": statistics.median(seconds(lambda m=m: explainer.explain(m)) for m in movies),
        "most_instances": int(counts[largest]),
        "largest": seconds(lambda: explainer.explain(largest)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
