"""From three small tables to predictions with reasons.

Run it with `python examples/films.py FOLDER`. The run, the predictions and the picture go to FOLDER
(default: runs/films-example), or to FOLDER-2 if it exists. docs/tutorial.md does the same in the
shell, step by step.
"""

import shutil
import sys
from itertools import count
from pathlib import Path

from hanme import Classifier, Graph
from hanme.explain import save

GRAPH = """\
target = "film"

[nodes.film]
table = "films.csv"
id = "film_id"
name = "title"
label = "genre"

[nodes.film.features]
year = "number"
country = "category"
plot = {kind = "text", size = 100}

[nodes.person]
table = "people.csv"
id = "person_id"
name = "name"

[relations.directed_by]
query = "SELECT * FROM 'roles.csv' WHERE job = 'director'"
source = {type = "film", column = "film_id"}
target = {type = "person", column = "person_id"}
reverse = "directed"

[relations.played_by]
query = "SELECT * FROM 'roles.csv' WHERE job = 'actor'"
source = {type = "film", column = "film_id"}
target = {type = "person", column = "person_id"}
reverse = "played"
"""

wanted = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/films-example")
names = (wanted if n == 1 else wanted.with_name(f"{wanted.name}-{n}") for n in count(1))
folder = next(name for name in names if not name.exists())  # nothing is overwritten
shutil.copytree(Path(__file__).parent / "films", folder / "tables")
(folder / "tables" / "graph.toml").write_text(GRAPH)

graph = Graph.from_tables(folder / "tables")
print(graph)
print("Metapaths:", ", ".join(graph.metapaths), "\n")

classifier = Classifier().fit(graph, out=folder / "run")
for part, f1 in classifier.scores().items():
    print(f"{part:5} micro F1 {f1['micro']:.2f}  macro F1 {f1['macro']:.2f}")

predictions = classifier.predictions()
predictions.write(folder / "predictions.csv")
unlabelled = [row for row in predictions.rows() if not row["labels"]]
print(f"\n{len(unlabelled)} films have no genre. The first five:\n")
for row in unlabelled[:5]:
    (genre,) = row["predicted"]
    print(f"{row['id']}  {row['name']:24} {genre:9} {row[f'p_{genre}']:.0%}")

explanation = classifier.explain(unlabelled[0]["id"])
print(f"\nWhy? For the first of them:\n\n{explanation}")
save(explanation, folder / "why.svg")

print(f"""
Predictions: {folder}/predictions.csv    The explanation as a picture: {folder}/why.svg

What next:
  hanme explain {folder}/run {unlabelled[1]["id"]} --out other.html
  hanme predict {folder}/run --graph NEWER    tables that have grown since training""")
