"""HAN-ME in a minute: a generated graph, two models, one explanation.

Run it with `make demo`, or `python examples/demo.py FOLDER` to say where the runs go.
"""

import shutil
import sys
from pathlib import Path

from hanme import Classifier
from hanme.data import load
from hanme.explain import fidelity, save

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
shutil.rmtree(folder, ignore_errors=True)

graph = load("planted")
print("A generated graph: a movie's genres show only at the far end of movie-actor-movie paths,")
print("and only if the actor in between is a specialist. HAN does not look at that actor.\n")
print(graph, "\n")

classifiers = {}
for model in ("han", "hanme"):
    classifier = Classifier(model, training={"epochs": 100}).fit(graph, out=folder / model)
    f1 = classifier.scores()["test"]
    print(f"{model:6} test micro F1 {100 * f1['micro']:.1f}  macro F1 {100 * f1['macro']:.1f}")
    classifiers[model] = classifier

hanme = classifiers["hanme"]
movie = next(row for row in hanme.predictions().rows() if row["split"] == "test")
print(f"\nHAN-ME's reasons for a test movie (true genres: {', '.join(movie['labels'])}):\n")
explanation = hanme.explain(movie["node"])
print(explanation)
save(explanation, folder / "movie.svg")
print("\nAre these the paths that count? Remove them, and as many random ones:\n")
print(fidelity(hanme.model_, graph, nodes=50))

print(f"""
Curves: {folder}/hanme/curves.svg    Predictions: {folder}/hanme/predictions.parquet
The explanation as a picture: {folder}/movie.svg

What next:
  .venv/bin/hanme inspect planted              show the graph and what metapaths cost
  .venv/bin/hanme explain {folder}/hanme 3 --out 3.html
  .venv/bin/hanme init examples/films          start with tables: docs/tutorial.md
  .venv/bin/hanme train IMDB --out runs/imdb   the paper's graph (downloaded once)
  .venv/bin/hanme benchmark --config paper --out runs/paper   the paper's table over five seeds""")
