"""What gives the label away is left out: by hanme init with a line, in training with a note."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from drafts import sqlite_file
from hanme.data.tables.build import graph as build
from hanme.data.tables.build.evidence import Labels
from hanme.data.tables.build.load import load_tables
from hanme.data.tables.draft.draft import Draft, output_path, write
from hanme.data.tables.draft.infer import infer
from hanme.errors import HanmeError
from hanme.graph import Graph

DATA = Path(os.environ.get("HANME_DATA", "-"))
ROWS = 600
DRAW = random.Random(0)
LABELS = [DRAW.random() < 0.3 for _ in range(ROWS)]
Tables = dict[str, tuple[str, list[str]]]
"""The header and the lines of each file."""


def cases(column: str = "", cell: Callable[[int], object] = lambda i: "") -> tuple[str, list[str]]:
    """Return a table of cases with a number that tells nothing, and perhaps one column more."""
    draw, more = random.Random(1), (lambda i: f"{cell(i)},") if column else (lambda i: "")
    header = f"case_id,{f'{column},' if column else ''}size,churn"
    rows = [
        f"k{i},{more(i)}{draw.gauss(0, 1):.5f},{'yes' if y else 'no'}" for i, y in enumerate(LABELS)
    ]
    return header, rows


def several(header: str, count: Callable[[int], int], line: Callable[[int, int], str]) -> tuple:
    """Return a table with `count` rows per case, numbered."""
    pairs = [(i, j) for i in range(ROWS) for j in range(count(i))]
    return header, [f"r{n},k{i},{line(i, j)}" for n, (i, j) in enumerate(pairs)]


def drawn(*values: object) -> object:
    return DRAW.choice(values)


def drafted(folder: Path, tables: Tables) -> Draft:
    """Write tables and their graph.toml."""
    folder.mkdir(exist_ok=True)
    for name, (header, rows) in tables.items():
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    draft = infer(folder, label="churn")
    write(draft, output_path(folder, force=True))
    return draft


def group_of(i: int, groups: int = 40) -> int:
    """Return a group of cases that have the same label."""
    return 2 * (i * 7 % (groups // 2)) + LABELS[i]


GROUPS = ("group_id,town", [f"g{j},t{j % 7}" for j in range(40)])
CLUBS = ("club_id,fee", [f"c{j},{j * 7 % 50}" for j in range(40)])
AGENTS = ("agent_id,age", [f"a{j},{20 + j * 7 % 50}" for j in range(30)])
WARDS = ("doctor_id,ward", [f"d{j},{'closing' if j < 3 else f'ward {j % 4}'}" for j in range(40)])
PLANTED: dict[str, tuple[Tables, str, str, str]] = {
    "an id of a table that determines the label": (
        {"groups": GROUPS, "cases": cases("group_id", lambda i: f"g{group_of(i)}")},
        "group_id",
        "rows with the same value have the same label",
        '[relations.group] with columns = ["group_id"]',
    ),
    "a group without a table": (
        {"cases": cases("team", lambda i: f"team {group_of(i)}")},
        "team",
        "rows with the same value have the same label",
        '[relations.team] with columns = ["team"]',
    ),
    "an id that is filled only once the label is known": (
        {"agents": AGENTS, "cases": cases("agent_id", lambda i: f"a{i % 30}" if LABELS[i] else "")},
        "agent_id",
        "filled only where the label is yes",
        '[relations.agent] with columns = ["agent_id"]',
    ),
    "an end of a link table": (
        {
            "clubs": CLUBS,
            "cases": cases(),
            "members": ("case_id,club_id", [f"k{i},c{group_of(i)}" for i in range(ROWS)]),
        },
        "relations.member",
        "the id at its end: rows with the same value have the same label",
        '[relations.member] with table = "members.csv"',
    ),
    "a column of linked rows": (
        {
            "cases": cases(),
            "orders": several(
                "order_id,case_id,carrier,price",
                lambda i: 1 + i % 3,
                lambda i, j: f"{drawn('x', 'y') if LABELS[i] else drawn('p', 'q')},{i % 9}.5",
            ),
        },
        "order.carrier",
        "each of its values has only one label",
        'carrier = "category" to [nodes.order.features]',
    ),
    "an event among linked rows": (
        {
            "cases": cases(),
            "events": several(
                "event_id,case_id,what,hour",
                lambda i: 2 + i % 3,
                lambda i, j: f"{'close' if LABELS[i] and not j else drawn('a', 'b')},{j * i % 24}",
            ),
        },
        "event.what",
        "rows are linked to 'close' only where the label is yes",
        'what = "category" to [nodes.event.features]',
    ),
    "a column of rows two links away": (
        {
            "cases": cases(),
            "doctors": WARDS,
            "visits": several(
                "visit_id,case_id,doctor_id,minutes",
                lambda i: 3,
                lambda i, j: (
                    f"d{drawn(0, 1, 2) if LABELS[i] and not j else DRAW.randrange(3, 40)},"
                    f"{DRAW.randrange(60)}"
                ),
            ),
        },
        "doctor.ward",
        "rows are linked to 'closing' only where the label is yes",
        'ward = "category" to [nodes.doctor.features]',
    ),
    "an id two links away": (
        {
            "cases": cases(),
            "groups": GROUPS,
            "visits": several(
                "visit_id,case_id,group_id,minutes,hour,room",
                lambda i: 2,
                lambda i, j: f"g{group_of(i)},{DRAW.randrange(60)},{i % 24},{drawn('x', 'y')}",
            ),
        },
        "relations.visit_group",
        "the id at its end: rows with the same value have the same label",
        '[relations.visit_group] with columns = ["group_id"]',
    ),
    "whether there are linked rows": (
        {
            "cases": cases(),
            "refunds": several(
                "refund_id,case_id,amount", lambda i: LABELS[i], lambda i, j: f"{i * 7 % 90}.5"
            ),
        },
        "relations.refund_case",
        "rows have such links only where the label is yes",
        '[relations.refund_case] with columns = ["case_id"]',
    ),
    "how many linked rows there are": (
        {
            "cases": cases(),
            "calls": several(
                "call_id,case_id,minutes",
                lambda i: 5 + i % 4 if LABELS[i] else 1 + i % 4,
                lambda i, j: f"{DRAW.randrange(60)}.5",
            ),
        },
        "relations.call_case",
        "the number of its links: ",
        '[relations.call_case] with columns = ["case_id"]',
    ),
    "a sum over linked rows": (
        {
            "cases": cases(),
            "payments": several(
                "payment_id,case_id,amount",
                lambda i: 4,
                lambda i, j: f"{[-50, 60, -70, 60 + 9 * LABELS[i]][j] + i % 7 / 2:.2f}",
            ),
        },
        "payment.amount",
        "its ",
        'amount = "number" to [nodes.payment.features]',
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_init_leaves_out_what_gives_the_label_away(kind: str, tmp_path: Path) -> None:
    tables, name, why, line = PLANTED[kind]
    draft = drafted(tmp_path, tables)
    (said,) = draft.notes
    assert said.startswith(f"Left out: {name}: {why}")
    assert line in said
    assert f'"{name}"' in said.partition("keep = ")[2]
    assert not load_tables(tmp_path).provenance.notes


@pytest.mark.parametrize("kind", PLANTED)
def test_training_leaves_out_what_gives_the_label_away(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, name, why, _ = PLANTED[kind]
    with monkeypatch.context() as patch:  # as a person would write it
        for find in ("own_leaks", "linked_leaks"):
            patch.setattr(f"hanme.data.tables.draft.infer.{find}", lambda *args: [])
        drafted(tmp_path, tables)
    notes = load_tables(tmp_path).provenance.notes
    used = {note.partition(" is not used: ")[0]: note for note in notes}
    relations = {n for n in used if n.startswith("relations.")}
    assert name in used or relations  # a column that is only a relation is left out as one
    assert any(why.rpartition(": ")[2] in note or why in note for note in notes)
    path, kept = tmp_path / "graph.toml", ", ".join(f'"{name}"' for name in used)
    path.write_text(
        path.read_text().replace('label = "churn"', f'label = "churn"\nkeep = [{kept}]')
    )
    before, graph = load_tables_without(tmp_path, kept), load_tables(tmp_path)
    assert not [note for note in graph.provenance.notes if note.partition(" is not")[0] in used]
    assert len(graph.edge_types) - len(before.edge_types) == 2 * len(relations)


def load_tables_without(folder: Path, kept: str) -> Graph:
    """Load the graph of a folder whose graph.toml keeps some sources, but without these."""
    path = folder / "graph.toml"
    text = path.read_text()
    path.write_text(text.replace(f"keep = [{kept}]", ""))
    graph = load_tables(folder)
    path.write_text(text)
    return graph


def test_a_number_beside_those_of_the_same_race_is_a_question(tmp_path: Path) -> None:
    draw, rows = random.Random(2), []
    for race in range(60):
        laps = draw.randrange(40, 80)
        for i in range(12):
            done = draw.random() < 0.4
            ran = laps - (draw.random() < 0.04) if done else draw.randrange(laps)
            rows.append(f"{race * 12 + i},race{race},{ran},{'yes' if done else 'no'}")
    draft = drafted(tmp_path, {"starts": ("id,race_id,laps,churn", rows)})
    (said,) = draft.notes
    assert said.startswith("Check: laps, compared with the largest of the same race, reaches AUC ")
    assert "is it known when you predict? If not, delete laps from [nodes.start.features]." in said
    assert said[:60] in (tmp_path / "graph.toml").read_text()
    assert not load_tables(tmp_path).provenance.notes


def test_a_column_that_nearly_gives_the_label_away_is_a_question(tmp_path: Path) -> None:
    draw = random.Random(2)
    draft = drafted(
        tmp_path, {"cases": cases("score", lambda i: f"{draw.gauss(4 * LABELS[i], 1)}")}
    )
    (said,) = draft.notes
    assert said.startswith("Check: score reaches AUC 0.99")
    assert load_tables(tmp_path).nodes["case"].width > 1


def test_beside_a_leak_weaker_columns_are_questions(tmp_path: Path) -> None:
    draw = random.Random(2)
    header, rows = cases("code", lambda i: 2 * (i % 3) + LABELS[i])
    rows = [f"{row},{draw.gauss(2 * LABELS[i], 1):.4f}" for i, row in enumerate(rows)]
    draft = drafted(tmp_path, {"cases": (f"{header},points", rows)})
    left_out, question = draft.notes
    assert left_out.startswith("Left out: code: ")
    assert question.startswith("Check: points reaches AUC 0.")


def clean(folder: Path) -> Tables:
    """Return tables in which much is related to the label, honestly."""
    draw = random.Random(7)
    town = [draw.randrange(30) for _ in LABELS]
    risk = [draw.random() for _ in range(30)]
    labels = [draw.random() < (0.1 + 0.8 * (risk[t] > 0.6)) for t in town]
    rows = [
        f"k{i},g{town[i]},{draw.gauss(2 * y, 1):.3f},{drawn('a', 'b') if y else drawn('b', 'c')},"
        f"{'' if draw.random() < 0.5 + y / 4 else i % 9},{'yes' if y else 'no'}"
        for i, y in enumerate(labels)
    ]
    orders = [
        f"k{i},{draw.choice('uvwx' if y else 'vwxyz')},{draw.expovariate(1 + y):.2f}"
        for i, y in enumerate(labels)
        for _ in range(draw.randrange(1, 4 + 3 * y))
    ]
    return {
        "groups": ("group_id,people", [f"g{j},{j * 91 % 70}" for j in range(30)]),
        "cases": ("case_id,group_id,score,kind,rest,churn", rows),
        "orders": ("order_id,case_id,item,price", [f"r{n},{row}" for n, row in enumerate(orders)]),
    }


def test_honest_columns_raise_no_suspicion(tmp_path: Path) -> None:
    assert not drafted(tmp_path, clean(tmp_path)).notes
    graph = load_tables(tmp_path)
    assert not [note for note in graph.provenance.notes if "not used" in note]


@pytest.mark.parametrize("seed", range(5))
def test_ids_that_hardly_repeat_raise_no_suspicion(seed: int) -> None:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, 1000)
    labels = Labels(np.arange(1000), y, ["no", "yes"])
    none = np.full(1000, np.nan)
    for ids in (500, 900, 5000, 10**9):
        assert labels.evidence(draw.integers(0, ids, 1000), none).why is None
    assert labels.evidence(np.arange(1000), draw.random(1000)).why is None


@pytest.mark.parametrize("numeric", [True, False])
def test_the_auc_of_a_column(numeric: bool) -> None:
    draw = np.random.default_rng(1)
    y = draw.integers(0, 2, 20_000)
    x = draw.normal(size=20_000) + y
    if not numeric:
        x = np.round(4 * x)
    value = np.unique(x, return_inverse=True)[1]
    labels = Labels(np.arange(len(y)), y, ["no", "yes"])
    number = x if numeric else np.full(len(y), np.nan)
    assert labels.evidence(value, number).auc == pytest.approx(roc_auc_score(y, x), abs=0.005)


def test_labels_of_test_rows_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leak that is in val and test rows only, by a column of parts or a drawn split."""
    seen, find = [], build.find_leaks
    monkeypatch.setattr(build, "find_leaks", lambda *args: seen.append(args[-1]) or find(*args))
    draw = random.Random(3)
    parts = [draw.choice(["train", "train", "val", "test"]) for _ in LABELS]
    copy = cases("copy", lambda i: drawn("a", "b") if parts[i] == "train" else "ab"[LABELS[i]])
    rows = [f"{row},{part}" for row, part in zip(copy[1], parts, strict=True)]
    draft = drafted(tmp_path, {"cases": (f"{copy[0]},part", rows)})
    assert not draft.notes
    assert load_tables(tmp_path).nodes["case"].width > 2
    for name, seeds in (("cases", (0,)), ("drawn", (0, 1))):
        folder = tmp_path if name == "cases" else tmp_path / name
        if name == "drawn":
            drafted(folder, {"cases": cases()})
        for seed in seeds:
            graph = load_tables(folder, seed=seed, cache=tmp_path / "cache")
            assert np.array_equal(seen[-1], ~graph.split.train.numpy())


def test_no_link_names_the_label(tmp_path: Path) -> None:
    drafted(tmp_path, {"agents": AGENTS, "cases": cases("agent_id", lambda i: f"a{i % 30}")})
    path = tmp_path / "graph.toml"
    link = (
        '[relations.{0}]\ntable = "cases.csv"\nsource = {{type = "case", column = "case_id"}}\n'
        'target = {{type = "{0}", column = "{1}"}}\n{2}\n[nodes.{0}]\n'
    )
    text = path.read_text()
    for column, more in (
        ("churn", ""),
        ("size", 'where = {churn = "yes"}'),
        ("size", 'each = "churn"'),
    ):
        path.write_text(text + link.format("answer", column, more))
        with pytest.raises(HanmeError, match=r"relations\.answer: churn is the label, which no"):
            load_tables(path)


def test_a_label_that_says_what_a_reference_means_makes_no_relation(tmp_path: Path) -> None:
    owners = ("owner_id,age", [f"o{j},{j * 7 % 50}" for j in range(100)])
    shops = ("shop_id,area", [f"s{j},{j * 7 % 50}" for j in range(100)])
    rows = [
        f"k{i},{'os'[y]}{i % 100},{i * 7 % 90}.5,{['owner', 'shop'][y]}"
        for i, y in enumerate(LABELS)
    ]
    tables = {"owners": owners, "shops": shops, "cases": ("case_id,source_id,size,churn", rows)}
    folder = tmp_path / "cases"
    draft = drafted(folder, tables)
    assert all("churn" not in str(relation) for relation in draft.relations.values())
    assert "churn" not in draft.nodes["case"].get("features", {})


def test_relations_of_named_metapaths_are_used(tmp_path: Path) -> None:
    path = tmp_path / "graph.toml"
    drafted(tmp_path, PLANTED["an end of a link table"][0])
    link = (
        '[relations.member]\ntable = "members.csv"\nsource = {type = "case", column = "case_id"}\n'
        'target = {type = "club", column = "club_id"}\n'
    )
    path.write_text(f"{path.read_text()}\n{link}")
    assert not load_tables(tmp_path).edge_types
    path.write_text(f'metapaths = ["case-club-case"]\n{path.read_text()}')
    assert load_tables(tmp_path).metapaths == ["case-club-case"]


def test_views_are_left_out(tmp_path: Path) -> None:
    rows = ", ".join(f"({i}, {i % 30}, {i * 7 % 90}, '{'yn'[y]}')" for i, y in enumerate(LABELS))
    script = (
        "CREATE TABLE cases (id INTEGER PRIMARY KEY, agent INTEGER, size REAL, churn TEXT);"
        f"INSERT INTO cases VALUES {rows};"
        "CREATE VIEW report AS SELECT id AS case_id, churn AS ended, size * 2 AS twice FROM cases;"
    )
    sqlite_file(tmp_path / "cases.db", script).close()
    draft = infer(tmp_path, label="churn")
    assert list(draft.nodes) == ["case"]
    (said,) = draft.skipped
    assert said.startswith(
        "cases.db: 1 view, as it may repeat the label: report. To use all, add --views"
    )
    assert 'write table = "report" and database = "cases.db" under [nodes.NAME]' in said
    draft = infer(tmp_path, label="churn", views=True)
    assert list(draft.nodes) == ["case", "report"]
    assert draft.notes[0].startswith(
        "Left out: report.ended: each of its values has only one label"
    )
    assert list(draft.nodes["report"]["features"]) == ["twice"]


@pytest.mark.skipif(not DATA.exists(), reason="needs HANME_DATA")
@pytest.mark.slow
def test_race_results(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    shutil.copytree(DATA / "relbench" / "rel-f1" / "db", tmp_path / "f1")
    path = tmp_path / "f1" / "results.parquet"
    table = pandas.read_parquet(path)
    finished = table.statusId == 1
    table.assign(outcome=finished.map({True: "finished", False: "out"})).to_parquet(path)
    draft = infer(tmp_path / "f1", "results", "outcome")
    left_out = {note.split(":")[1].strip() for note in draft.notes if note.startswith("Left out")}
    assert left_out == {"position", "milliseconds", "statusId"}
    asked = {n.split()[1].strip(",") for n in draft.notes if n.startswith("Check")}
    assert {"positionOrder", "points", "laps", "rank"} <= asked


@pytest.mark.skipif(not DATA.exists(), reason="needs HANME_DATA")
@pytest.mark.slow
def test_views_of_northwind(tmp_path: Path) -> None:
    folder = tmp_path / "northwind"
    shutil.copytree(DATA / "relational" / "northwind", folder)
    draft = infer(folder, "Orders", "ShipVia")
    assert not draft.notes
    assert "Invoices" in draft.skipped[0]
    assert not any("ShipVia" in str(relation) for relation in draft.relations.values())
    draft = infer(folder, "Orders", "ShipVia", views=True)
    names = {note.split(": ")[1] for note in draft.notes}
    assert names == {"invoice.ShipperName", "orders_qry.ShipVia"}


@pytest.mark.skipif(not DATA.exists(), reason="needs HANME_DATA")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("relational/telco", None), ("relational/fraud", None), ("relational/chinook", None),
        ("relational/credit", "DEFAULT"), ("relational/comics", "ALIGN"),
        ("tables/movies.json", "Major Genre"),
    ],
)  # fmt: skip
def test_real_tables_raise_no_suspicion(name: str, label: str | None, tmp_path: Path) -> None:
    given = DATA / name
    copy = shutil.copytree if given.is_dir() else shutil.copy
    draft = infer(Path(copy(given, tmp_path / given.name)), label=label)
    assert draft.config.nodes[draft.target].label
    assert not draft.notes
