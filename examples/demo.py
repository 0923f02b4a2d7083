"""Train three models on a generated graph, compare them, and explain two predictions.

Run it with `make demo`, or with `python examples/demo.py FOLDER` to choose where the runs go.
"""

import sys
from itertools import count
from pathlib import Path

from hanme import Classifier
from hanme.data import load
from hanme.explain import save

MODELS = {
    "han": "HAN: sees the two ends of a path",
    "hanme": "HAN-ME: sees the person in between, too",
    "default": "HAN-ME + linear model + trees",
}
TASK = """\
Task: predict the genres of movies. They show only in other movies by the same people, and
only if these people are specialists of one genre. Guests appear in any movie.

Micro F1 on test movies in percent, and on validation movies over the epochs:
"""
NEXT = """
Picture:
  {folder}/why.svg             the reasons for the correct prediction

Next:
  .venv/bin/hanme serve {folder}/default              explore the predictions in a browser
  .venv/bin/python examples/films.py                  start from CSV files (docs/tutorial.md)
  .venv/bin/python examples/hanme_from_scratch.py     read the paper on one page of code"""


def new_folder(wanted: Path) -> Path:
    """Create a folder under the first free name: FOLDER, FOLDER-2, ... Nothing is overwritten."""
    names = (wanted if n == 1 else wanted.with_name(f"{wanted.name}-{n}") for n in count(1))
    folder = next(name for name in names if not name.exists())
    folder.mkdir(parents=True)
    return folder


def sparkline(values: list[float], width: int = 40) -> str:
    """Draw a curve in one line of text."""
    picked = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    low, high = min(picked), max(picked)
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (v - low) / (high - low or 1))] for v in picked)


def main() -> None:
    """Train, compare, explain."""
    folder = new_folder(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
    graph = load("planted")
    print("\nA generated graph:", ", ".join(f"{n.num_nodes} {t}s" for t, n in graph.nodes.items()))
    print(TASK)
    fitted = {}
    for name, text in MODELS.items():
        recipe = "default" if name == "default" else "paper"
        model = Classifier("han" if name == "han" else "hanme", training={"recipe": recipe})
        fitted[name] = model.fit(graph, out=folder / name)
        curve = sparkline([epoch["val_micro"] for epoch in model.run_.metrics])
        print(f"  {100 * model.score():5.1f}  {curve}  {text}", flush=True)

    test = [row for row in fitted["hanme"].predictions().rows() if row["split"] == "test"]
    right = next(row for row in test if row["predicted"] == row["labels"])
    wrong = next(
        row for row in test if row["predicted"] and not {*row["predicted"]} & {*row["labels"]}
    )
    for words, row in (("A correct prediction", right), ("A wrong one", wrong)):
        explanation = fitted["hanme"].explain(row["node"])
        print(f"\n{words}; the true genre is {' and '.join(row['labels'])}.\n")
        print(explanation.text(5))
    save(fitted["hanme"].explain(right["node"]), folder / "why.svg")

    print(NEXT.format(folder=folder))


if __name__ == "__main__":
    main()
