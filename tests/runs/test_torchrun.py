"""Several processes, started by the real torchrun, as one; killed, and gone on."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from hanme.runs import OpenedRun, RunConfig, train

CONFIG = {
    "data": {"name": "planted", "options": {"movies": 80, "genres": 3}},
    "model": {
        "name": "hanme",
        "options": {
            "metapaths": ["movie-actor-movie", "movie-director-movie"],
            "hidden_channels": 16,
            "heads": 2,
        },
    },
    "training": {"recipe": "paper", "epochs": 3, "batch_size": 7, "lr": 0.01, "select": "last"},
}
OTHERS = {
    name: {
        "data": {"name": "planted", "options": {"movies": 60, "genres": 3}},
        "model": {"name": model, "options": {"hidden_channels": 8, "heads": 2, **options}},
        "training": {"recipe": "paper", "epochs": 1, "batch_size": 9, "lr": 0.01, "select": "last"},
    }
    for name, model, options in (
        ("gat", "gat", {}),
        ("magnn", "magnn", {"metapaths": ["movie-actor-movie"]}),
        ("drawn", "hanme", {"metapaths": ["movie-actor-movie"], "per_root": 2}),
    )
}
"""Other models, and instances drawn per root."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc").exists(), reason="finds processes in /proc, as Linux has it"
    ),
]
WORKER = Path(__file__).parents[1] / "torchrun_worker.py"
LIMIT = 600


def torchrun(*arguments: str, **options) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HANME_PARENT": "1"}  # another's parent
    command = [sys.executable, "-m", "torch.distributed.run", *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, **options)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_two_processes_are_one_and_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    alone = train(RunConfig.make(CONFIG), tmp_path / "alone")
    (tmp_path / "config.json").write_text(json.dumps({"hanme": CONFIG, **OTHERS}))
    # on a busy machine gloo may abort while it connects again: a second restart
    options = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "2")
    job = torchrun(*options, str(WORKER), str(tmp_path / "config.json"), str(tmp_path))
    _, said = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, said
    assert "Signal 9 (SIGKILL)" in said or "exitcode: -9" in said
    calm, killed = weights(tmp_path / "calm"), weights(tmp_path / "killed")
    for name, value in weights(alone.folder).items():
        torch.testing.assert_close(calm[name], value, atol=1e-5, rtol=1e-5)
        assert torch.equal(calm[name], killed[name])
    assert (
        json.loads((tmp_path / "scores.json").read_text())
        == OpenedRun.open(tmp_path / "calm").evaluate()
    )
    table = "SELECT * FROM '{}' ORDER BY node"
    parts = duckdb.sql(table.format(tmp_path / "predictions.parquet/part-*.parquet")).fetchall()
    whole = duckdb.sql(table.format(tmp_path / "calm/predictions.parquet")).fetchall()
    assert len(list((tmp_path / "predictions.parquet").iterdir())) == 2
    assert [row[:5] for row in parts] == [row[:5] for row in whole]
    for mine, theirs in zip(parts, whole, strict=True):
        assert mine[-3:] == pytest.approx(theirs[-3:], abs=1e-5)
    for name, values in OTHERS.items():
        train(RunConfig.make(values), tmp_path / f"{name}-alone")
        shared = weights(tmp_path / name)
        for key, value in weights(tmp_path / f"{name}-alone").items():
            torch.testing.assert_close(shared[key], value, atol=1e-5, rtol=1e-4)
    rows = [json.loads(line) for line in (tmp_path / "killed/metrics.jsonl").open()]
    assert [row["epoch"] for row in rows] == [1, 2, 3]


def test_a_lost_machine_of_two_leaves_the_other_training(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values = {**CONFIG, "training": {**CONFIG["training"], "epochs": 30}}
    config, out = tmp_path / "config.toml", tmp_path / "run"
    config.write_text(tomli_w.dumps(values))
    alive = "join_timeout=60,last_call_timeout=4,keep_alive_interval=1,keep_alive_max_attempt=3"
    options = ("--nnodes", "1:2", "--max-restarts", "3")
    meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}")
    command = ("-m", "hanme", "train", "--config", str(config), "--out", str(out))
    agents = [
        torchrun(
            *options,
            *meet,
            *("--rdzv-conf", f"{alive},is_host={host}", "--local-addr", address),
            *command,
        )
        for host, address in (("true", "127.0.0.1"), ("false", "127.0.0.2"))
    ]
    try:
        wait_for_epochs(out, 3, agents[0])
        assert len(children(agents[1].pid)) == 1  # both take part
        kill(agents[1])
        _, said = agents[0].communicate(timeout=LIMIT)
        assert agents[0].returncode == 0, said
        assert "another process of this run has ended" in said
    finally:
        for agent in agents:
            kill(agent)
            agent.communicate()
    alone = train(RunConfig.make(values), tmp_path / "alone")
    there = weights(out)
    for name, value in weights(alone.folder).items():
        torch.testing.assert_close(there[name], value, atol=1e-4, rtol=1e-3)


def wait_for_epochs(out: Path, epochs: int, agent: subprocess.Popen) -> None:
    metrics, end = out / "metrics.jsonl", time.monotonic() + LIMIT
    while not metrics.exists() or len(metrics.read_text().splitlines()) < epochs:
        assert agent.poll() is None, agent.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.05)


def kill(agent: subprocess.Popen) -> None:
    """Kill an agent and the processes that it has started, as a machine that is switched off."""
    for process in (*children(agent.pid), agent.pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
