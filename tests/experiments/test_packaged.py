"""The packaged experiment on the paper's open questions."""

from hanme.experiments.benchmark import Experiment
from hanme.experiments.configuration import look_up

OWN = {
    "multihop": {},
    "mean": {"model.options.encoder": "mean"},
    "multihop, uniform attention": {"model.options.attention": "uniform"},
    "mean, uniform attention": {
        "model.options.encoder": "mean",
        "model.options.attention": "uniform",
    },
    "multihop, softmax gate": {"model.options.gate": "softmax"},
    "multihop, relu gate": {"model.options.gate": "relu"},
    "multihop, learned γ": {"model.options.learn_gamma": True},
    "multihop, given features": {"data.features": "given"},
    "multihop, one-hot features": {"data.features": "onehot"},
    "multihop, words of names": {"data.features": "names"},
    "mean, words of names": {"data.features": "names", "model.options.encoder": "mean"},
    "multihop, LTS λ0 = 0.1, T = 100": {"training.lts.start": 0.1, "training.lts.until": 100},
    "multihop, LTS λ0 = 0.2, T = 50": {"training.lts.start": 0.2, "training.lts.until": 50},
}
"""What each row changes; the rows with keywords and with longer metapaths add one."""


def test_a_row_differs_from_the_paper_s_model_in_what_its_name_says() -> None:
    plan = Experiment.read("questions")
    assert len(plan.seeds) == len(set(plan.seeds)) == 10
    rows = {entry.name: entry.config.model_dump() for entry in plan.entries({})}
    assert len({entry.folder for entry in plan.entries({})}) == len(rows) == 17
    paper = rows["multihop"]
    assert (paper["training"]["recipe"], paper["training"]["epochs"]) == ("paper", 200)
    assert paper["training"]["patience"] == 100
    for name, own in OWN.items():
        for field, value in own.items():
            assert look_up(rows[name], field) == value
        changed = {
            f"{part}.{key}"
            for part in ("data", "model", "training")
            for key in rows[name][part]
            if rows[name][part][key] != paper[part][key]
        }
        expected = {".".join(field.split(".")[:2]) for field in own}
        assert changed == expected, name
    short = paper["model"]["options"]["metapaths"]
    for hops in (4, 6):
        *same, added = rows[f"multihop, {hops} hops"]["model"]["options"]["metapaths"]
        assert same == short
        assert added.count("-") == hops
    keywords = {name: row for name, row in rows.items() if "keywords" in name}
    for name, row in keywords.items():
        assert row["model"]["options"]["metapaths"] == [*short, "movie-keyword-movie"]
        assert (row["data"]["features"] == "names") == ("words of names" in name)
        assert row["model"]["options"].get("encoder") == name.split(",")[0]
    assert len(keywords) == 2
