"""The package's configuration files, and one's own."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from hanme.common.toml import read_toml
from hanme.data import METAPATHS
from hanme.errors import HanmeError
from hanme.experiments import protocols
from hanme.experiments.benchmark import Entry, Experiment, published
from hanme.experiments.configuration import find_config, models, override, packaged, read_config
from hanme.experiments.tune import search_space
from hanme.runs import RunConfig, build_network, load_graph

FOLDER = Path(str(files("hanme.experiments")))
PUBLISHED = read_toml(FOLDER / "published.toml")


@pytest.mark.parametrize("name", packaged())
def test_a_packaged_file_is_a_run_s_configuration(name: str) -> None:
    path = FOLDER / "configs" / f"{name}.toml"
    config = RunConfig.make(read_config(path), str(path))
    model, _, graph = name.removesuffix("-paper").rpartition("-")
    assert config.data.name == graph
    assert config.data.source is None
    assert config.model.name == model.partition("-")[0]
    rule = "macro" if model in ("hanme", "linear") else "half"
    assert config.training.decide == ("fallback" if name.endswith("-paper") else rule)
    assert config.training.select != "last"
    assert path.read_text().startswith("# ")  # says where its values come from


def test_every_model_has_a_file_for_every_graph() -> None:
    assert {"han", "hanme-direct", "hanme-multihop"} <= set(models("planted"))
    assert models("IMDB") == models("ACM") == models("DBLP") == models("planted")


@pytest.mark.parametrize("graph", ["IMDB", "ACM", "DBLP"])
def test_their_models_can_be_built_on_the_real_graphs(graph: str, hgb_source: Path) -> None:
    for model in set(models(graph)) - {"linear"}:  # which has no network
        config = RunConfig.make(
            override(read_config(find_config(f"{model}-{graph}")), {"data.source": str(hgb_source)})
        )
        build_network(config.model, load_graph(config))


def test_a_folder_s_file_takes_the_place_of_the_packaged(tmp_path: Path) -> None:
    mine = tmp_path / "han-IMDB.toml"
    assert find_config("han-IMDB", tmp_path) == FOLDER / "configs" / "han-IMDB.toml"
    mine.write_text("")
    assert find_config("han-IMDB", tmp_path) == mine
    assert find_config(str(mine)) == mine
    with pytest.raises(HanmeError, match=r"no configuration 'gru-IMDB'; there are .*han-IMDB"):
        find_config("gru-IMDB", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nname = 3\n[model]", "mine.toml: data.name: Input should be a valid string"),
        ('[data]\nname="IMDB"\n[model]\n[training]\nlr=-1', "mine.toml: model han|metapaths"),
        (
            '[data]\nname="IMDB"\n[model]\nname="han"\n[model.options]\nheads="x"',
            "mine.toml: model han: heads",
        ),
        (
            '[data]\nname="IMDB"\n[model.options]\nmetapaths=["a-b"]\n[training]\nlr=-1',
            "mine.toml: training.lr: Input should be greater than 0, but got -1",
        ),
        ("[data]\nname = ", "mine.toml: not a TOML file: Invalid value"),
        ("[dat]\n", "mine.toml: data: Field required"),
    ],
)
def test_a_mistake_names_file_and_field(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(HanmeError, match=message):
        read_config(path)


def test_override_sets_fields_in_a_copy() -> None:
    values: dict[str, Any] = {"training": {"lr": 1.0}}
    changed = override(values, {"training.lr": 2.0, "model.options.heads": 4})
    assert changed == {"training": {"lr": 2.0}, "model": {"options": {"heads": 4}}}
    assert values == {"training": {"lr": 1.0}}
    with pytest.raises(HanmeError, match=r"training\.lr\.x: lr is a value"):
        override(values, {"training.lr.x": 1})


def test_every_search_range_is_used_and_holds_what_is_packaged() -> None:
    unused = {
        (table, field)
        for table, entries in read_toml(FOLDER / "spaces.toml").items()
        for field in entries
    }
    for name in packaged():
        model, _, graph = name.rpartition("-")
        values = read_config(find_config(name))
        if model in ("hanme", "linear"):  # the default recipe: it chooses by itself
            continue
        if graph == "paper":  # the paper's own settings are not searched for
            continue
        space = search_space(model, graph, values)
        assert {"training.lr", "training.weight_decay"} <= set(space)
        unused -= {(table, field) for table in ("every", model, graph) for field in space}
    assert not unused


def test_published_figures_name_a_model_a_graph_a_rule_and_a_source() -> None:
    for figure in PUBLISHED["figure"]:
        assert figure["graph"] in METAPATHS
        assert figure["rule"] in ("with_fallback", "without_fallback")
        assert figure["source"] in PUBLISHED["sources"]
        for score in {"micro", "macro"} & figure.keys():
            assert 50 < figure[score] < 100
        assert figure in published(figure["graph"], figure["model"])
    others = {"echoless-lp", "lmsps"}  # the best published figures; not among our models
    names = {figure["model"].removesuffix("-lts") for figure in PUBLISHED["figure"]}
    assert names <= set(models("IMDB")) | others


def test_rows_that_would_share_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'title = "x"\nabout = ""\nseeds = [1]\nrule = "with_fallback"\n'
        '[base]\ndata.name = "planted"\n'
        'model.name = "linear"\n[[row]]\nname = "A plain"\n[[row]]\nname = "a  plain"\n'
    )
    experiment = Experiment.read(str(tmp_path / "mine.toml"))
    with pytest.raises(HanmeError, match="rows 'A plain' and 'a  plain' would share a run folder"):
        experiment.entries({})


def test_only_what_was_refitted_has_a_row_of_its_own() -> None:
    training = {"linear": True, "refit": True}
    for model, weights in (("gat", 1), ("linear", 2)):
        values = {"data": {"name": "planted"}, "model": {"name": model}, "training": training}
        tested = protocols.Tested(Entry(model, model, RunConfig.make(values), model), ())
        assert len(tested.weights) == weights
