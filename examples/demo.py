"""HAN-ME in a minute: a graph made on the spot, two models, one explanation.

Run it with `make demo`, or `python examples/demo.py FOLDER` to say where the runs go.
"""

import shutil
import sys
from pathlib import Path

from hanme.datasets import METAPATHS, planted
from hanme.explain import explain, fidelity, save
from hanme.training import Run, RunConfig, open_run, train

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
shutil.rmtree(folder, ignore_errors=True)

print("A planted graph: movies whose genres show only at the far end of movie-actor-movie paths,")
print("and only where the actor in between is a specialist. HAN does not see that actor.\n")
print(planted(), "\n")

scores = {}
for name, options in (("han", {}), ("hanme", {"encoder": "multihop"})):
    config = RunConfig.make(
        {
            "data": {"name": "planted"},
            "model": {"name": name, "options": {"metapaths": METAPATHS["planted"], **options}},
            "training": {"epochs": 100},
        }
    )
    run = train(config, folder / name)
    test = run.result()["scores"]["with_fallback"]["test"]
    print(f"{name:6} test micro F1 {test['micro']:.1f}  macro F1 {test['macro']:.1f}")

data, model = open_run(Run.open(folder / "hanme"))
movie = int(data["movie"].test_mask.nonzero()[0])
genres = [data["movie"].label_names[i] for i in data["movie"].y[movie].nonzero().flatten()]
print(f"\nWhat made HAN-ME's prediction for one test movie (true genres: {', '.join(genres)}):\n")
explanation = explain(model, data, movie)
print(explanation)
save(explanation, folder / "movie.svg")
print("\nIs that what the predictions rest on? Take it away, and as much at random:\n")
print(fidelity(model, data, nodes=50))

print(f"""
Curves: {folder}/hanme/curves.svg    Predictions: {folder}/hanme/predictions.parquet
The explanation as a picture: {folder}/movie.svg

What next:
  .venv/bin/hanme inspect planted                what is in the graph, and what metapaths cost
  .venv/bin/hanme explain {folder}/hanme 3 --out 3.html
  .venv/bin/hanme train planted -o intermediate=0 --out runs/nothing-between
  .venv/bin/hanme train IMDB --out runs/imdb     the paper's graph (downloaded once)
  .venv/bin/hanme reproduce --out runs/paper     the paper's table over five seeds""")
