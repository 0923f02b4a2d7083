"""List the runs in a folder with their settings and scores."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hanme.common.files import is_locked
from hanme.errors import HanmeError
from hanme.runs.config import RunConfig
from hanme.runs.folder import LOCK, RUNS, Run


@dataclass(frozen=True)
class ListedRun:
    """A run folder as ``hanme runs`` shows it; a damaged one has no configuration.

    Scores are micro and macro F1 in percent by part of the split, under the run's own decision.
    A run in training has a stage, such as ``"trees"`` or ``"network"`` and, where they are known,
    the percentage that is done of it and the seconds that the rest takes at most.
    """

    folder: Path
    state: Literal["finished", "training", "unfinished", "damaged"]
    modified: float  # seconds since 1970
    config: RunConfig | None = None
    epochs: int = 0
    scores: dict[str, dict[str, float]] | None = None
    message: str = ""  # what is damaged
    stage: str = ""
    percent: float | None = None
    seconds_left: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        settings = None if self.config is None else self.config.model_dump(mode="json")
        return vars(self) | {"folder": str(self.folder), "config": settings}


def list_runs(root: Path = RUNS) -> list[ListedRun]:
    """Return the runs in a folder, the latest first; a damaged one does not hide the others."""
    folders = [path.parent for path in root.glob("*/config.json")]
    return sorted(map(_listed, folders), key=lambda run: -run.modified)


def _modified(folder: Path) -> float:
    """Return when something in a run was changed last; files vanish, and links lead nowhere."""
    times = [0.0]
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                times.append(path.stat().st_mtime)
    return max(times)


def _listed(folder: Path) -> ListedRun:
    modified = _modified(folder)
    try:
        run = Run.open(folder)
        if not run.finished:
            epochs = int(next((row["epoch"] for row in reversed(run.metrics())), 0))
            if is_locked(folder / LOCK):
                progress = run.progress()
                return ListedRun(folder, "training", modified, run.config, epochs, **progress)
            return ListedRun(folder, "unfinished", modified, run.config, epochs)
        result = run.result()
        own = next(iter(result["scores"].values()))  # the run's own decision comes first
        return ListedRun(folder, "finished", modified, run.config, result["epochs"], own)
    except (HanmeError, OSError) as error:
        return ListedRun(folder, "damaged", modified, message=str(error))
