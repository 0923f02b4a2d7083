"""The cache of stores: who writes, what is removed, and how much is kept."""

import os
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from hanme.data import planted
from hanme.data.store import cache as store_cache
from hanme.data.store.cache import StoreCache
from hanme.data.store.write import write_store


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_of_two_that_build_a_graph_one_does_and_neither_disturbs_the_other(tmp_path: Path) -> None:
    graph, built = planted(movies=30), list[str]()

    def store(folder: Path) -> None:
        built.append(folder.name)
        time.sleep(0.2)
        write_store(graph, folder, features="given")

    def build(key: str) -> None:
        assert StoreCache(tmp_path, "tables/a", key).write("given", store).sizes == graph.sizes

    threads = [threading.Thread(target=build, args=(key,)) for key in ("k1", "k1", "k2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(built).count("k1-given") in (1, 2)  # again if k2 came in between
    assert len(list((tmp_path / "tables" / "a").glob("k*"))) == 1


def test_what_kills_have_left_and_stores_of_other_keys_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "tables" / "a"
    for name in (f".old-given.{uuid4().hex}", f".new-given.{uuid4().hex}", "old-given", "new-mean"):
        (folder / name).mkdir(parents=True)
    StoreCache(tmp_path, "tables/a", "new").keep("given", planted(movies=30))
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == [
        "new-given",
        "new-mean",  # not readable, but perhaps of a later format
    ]


def test_stores_that_were_not_used_for_longest_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planted(movies=30)
    caches = {name: StoreCache(tmp_path, f"tables/{name}", "k") for name in "abcd"}
    for age, name in enumerate("cba"):
        caches[name].keep("given", graph)
        os.utime(caches[name].path("given"), (1000 - age, 1000 - age))
    assert caches["a"].read("given") is not None  # the oldest one is used again
    size = size_of(caches["a"].path("given"))
    monkeypatch.setattr(store_cache, "LIMIT", 3 * size)
    caches["d"].keep("given", graph)
    assert {name for name in "abcd" if caches[name].path("given").exists()} == {"a", "c", "d"}
    monkeypatch.setattr(store_cache, "LIMIT", size - 1)
    caches["b"].keep("given", graph)  # larger than the limit by itself
    assert {name for name in "abcd" if caches[name].path("given").exists()} == {"b"}
