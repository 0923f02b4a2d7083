"""The API: a route for everything that can be asked of a run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from hanme import __version__
from hanme.common.memory import used_mb
from hanme.common.text import unused_name
from hanme.errors import HanmeError
from hanme.runs.listing import list_runs
from hanme.serve import changes, schemas
from hanme.serve.overview import Differ, compare, listed, overview
from hanme.serve.report import STATIC
from hanme.serve.served import Json, NotFound, NotSupported, ServedRun, load_runs, require
from hanme.serve.table import Ints
from hanme.serve.work import Pool, QueueFull, Stopped, Training

API = "/api/v1"

THREADS, WAITING, SECONDS = 2, 128, 30.0
"""Explanations at a time, explanations that may wait, and seconds that one may take."""

QUICK = 2
"""Other requests that compute at a time: more would only wait for each other."""

STATUS = {NotFound: 404, NotSupported: 409, QueueFull: 429, Stopped: 503}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": schemas.Problem, "description": "The request is refused; see docs/api.md."},
    "5XX": {"model": schemas.Problem, "description": "The server is busy, or the work too long."},
}


class State:
    """What all requests share."""

    def __init__(self, runs: Mapping[str, ServedRun]) -> None:
        self.runs, self.pool = dict(runs), Pool(THREADS, WAITING, SECONDS)
        self.overviews = {name: overview(served) for name, served in runs.items()}
        self.training = Training(self.add)

    def add(self, folder: Path) -> None:
        """Serve another run."""
        for name, served in load_runs([folder]).items():
            name = unused_name(name, self.runs, "-")
            served.name, self.overviews[name] = name, overview(served)
            self.runs[name] = served

    def run(self, name: str) -> ServedRun:
        """Return a run by name."""
        require("run", name, self.runs)
        return self.runs[name]


async def _state(request: Request) -> State:
    state: State = request.app.state.shared
    return state


Shared = Annotated[State, Depends(_state)]


async def _run(state: Shared, run: schemas.Text) -> ServedRun:
    return state.run(run)


Run = Annotated[ServedRun, Depends(_run)]
Filter = Annotated[schemas.Filter, Query()]


def _found(run: Run, query: Filter) -> Ints | None:
    """Check the labels of a filter; return the nodes with its text, best first, if it has one."""
    for label in filter(None, (query.predicted, query.true, query.of)):
        require("label", label, run.graph.labels)
    if not query.q.strip():
        return None
    return run.index.search.containing(query.q, run.graph.target)


def wants_csv(request: Request, format: str) -> bool:
    """Return whether a request wants CSV: by its parameter, else by its Accept header."""
    return format == "csv" or (not format and "text/csv" in request.headers.get("accept", ""))


def download(lines: Iterable[str], name: str) -> Response:
    """Answer with the lines of a CSV file."""
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=disposition)


Found = Annotated[Ints | None, Depends(_found)]
router = APIRouter(prefix=API, responses=PROBLEMS)


@router.get("/health")
async def health(state: Shared) -> Json:
    """Return version, memory and the number of explanations that run and wait."""
    return {"version": __version__, "memory_mb": used_mb(), **state.pool.state()}


@router.get("/runs")
async def list_served(state: Shared) -> dict[str, list[Json]]:
    """List the runs."""
    return {"runs": [run.info() for run in state.runs.values()]}


@router.get("/listing")
def list_folders(
    state: Shared,
    run: Annotated[schemas.Text, Query(description="The run to compare settings with.")] = "",
) -> dict[str, Any]:
    """List all run folders beside those that are served, with settings, scores and progress."""
    own = state.run(run).run.config if run else None
    folders = {one.run.folder.parent for one in state.runs.values() if one.run.folder}
    rows = [listed(one, state.runs, own) for root in folders for one in list_runs(root)]
    return {"runs": rows, "training": state.training.running, "error": state.training.error}


@router.get("/runs/{run}/overview")
async def show_overview(state: Shared, run: Run) -> Json:
    """Show how good a run is, where it is weak, and the curves of training."""
    return state.overviews[run.name]


@router.get("/runs/{run}/graph")
async def show_graph(run: Run) -> Json:
    """Show node types and relations."""
    return run.graph_info()


@router.get("/runs/{run}/search")
def search(
    run: Run,
    q: Annotated[str, Query(min_length=1, max_length=200, description="A name or an id.")],
    type: Annotated[schemas.Text, Query(description="Only nodes of this type.")] = "",
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of nodes.")] = 20,
) -> dict[str, list[schemas.NodeRef]]:
    """Find nodes by name or id: whole, by a part, or misspelt."""
    return {"nodes": run.search(q, type, limit)}


@router.get("/runs/{run}/nodes/{type}/{number}")
def show_node(
    run: Run,
    type: schemas.Text,
    number: schemas.Number,
    limit: Annotated[int, Query(ge=1, le=1000, description="Links per relation.")] = 100,
) -> schemas.NodeInfo:
    """Show a node of any type with its links."""
    return run.node_info(type, number, limit)


@router.get(
    "/runs/{run}/predictions",
    response_model=schemas.Predictions,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def list_predictions(request: Request, run: Run, query: Filter, found: Found) -> Any:
    """List predictions: filtered, sorted, a page at a time; as CSV, all of them."""
    if not wants_csv(request, query.format):
        return run.table.page(query, found)
    nodes = torch.from_numpy(run.table.select(query, found).copy())
    return download(run.table.prediction.take(nodes).csv(), "predictions.csv")


@router.post("/runs/{run}/predictions")
def find_predictions(run: Run, nodes: schemas.Nodes) -> schemas.Predictions:
    """Return the predictions of nodes by id or name, in their order."""
    rows = [run.table.row(run.target(node)) for node in nodes.nodes]
    return schemas.Predictions(total=len(rows), rows=rows)


@router.get("/runs/{run}/predictions/{node}")
async def show_prediction(run: Run, node: schemas.Number) -> schemas.Prediction:
    """Show the prediction of a node."""
    return run.table.row(run.target(node))


@router.get("/runs/{run}/explanations/{node}")
async def explain(
    request: Request,
    state: Shared,
    run: Run,
    node: schemas.Number,
    asked: Annotated[schemas.Question, Query()],
) -> schemas.ExplanationInfo:
    """Explain why a node got, or did not get, a label."""
    return await state.pool.run(request, lambda pause: run.explain(node, asked, pause))


@router.get("/runs/{run}/changes/{node}")
async def try_changes(
    request: Request, state: Shared, run: Run, node: schemas.Number, label: schemas.Text = ""
) -> schemas.Effects:
    """Try single changes of a node: without each link, and with common values in each column."""
    return await state.pool.run(request, lambda pause: changes.effects(run, node, label, pause))


@router.post("/runs/{run}/changes/{node}")
async def change(
    request: Request, state: Shared, run: Run, node: schemas.Number, body: schemas.Changes
) -> dict[str, schemas.Outcome]:
    """Predict a node without some links, with other links, or with other cells in its row."""
    return await state.pool.run(request, lambda pause: changes.change(run, node, body, pause))


@router.post("/runs/{run}/rows")
async def predict_rows(
    request: Request,
    state: Shared,
    run: Run,
    new: schemas.NewRows,
    explain: schemas.ToExplain = None,
) -> dict[str, list[schemas.NewPrediction]]:
    """Predict and explain rows that are in no table, without training."""
    return {
        "rows": await state.pool.run(
            request, lambda pause: changes.predict_rows(run, new.rows, explain, pause)
        )
    }


@router.post(
    "/runs/{run}/rows.csv",
    openapi_extra={"requestBody": {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
async def predict_csv(
    request: Request, state: Shared, run: Run, explain: schemas.ToExplain = None
) -> dict[str, list[schemas.NewPrediction]]:
    """Predict the rows of a CSV file in UTF-8, whose columns are those of the target's table.

    A column named for a relation, or for the node type that it leads to, has the ids or names of
    linked nodes, separated by ``|``.
    """
    rows = changes.read_rows(run, await request.body())
    return {
        "rows": await state.pool.run(
            request, lambda pause: changes.predict_rows(run, rows, explain, pause)
        )
    }


@router.get(
    "/runs/{run}/reviews",
    response_model=schemas.ReviewInfo,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def show_reviews(
    request: Request,
    run: Run,
    limit: schemas.Limit = 10,
    format: Literal["", "json", "csv"] = "",
) -> Any:
    """Show which nodes to review next, most informative first; as CSV, the answers so far."""
    if run.reviews is not None and wants_csv(request, format):
        return download([run.reviews.text()], "reviewed.csv")
    return run.review_info(limit)


@router.post("/runs/{run}/reviews")
def review(run: Run, answer: schemas.Answer, limit: schemas.Limit = 10) -> schemas.ReviewInfo:
    """Keep an answer: it is on the disk once this is answered. Return what to review next."""
    run.answer(answer)
    return run.review_info(limit)


@router.post("/runs/{run}/train", status_code=202)
def train(state: Shared, run: Run) -> dict[str, str]:
    """Train the run again with its reviewed labels; return the name of the new run's folder."""
    if run.reviews is None or run.run.folder is None or not run.reviews.actions:
        raise NotSupported(f"{run.name}: nothing has been reviewed yet")
    folder = state.training.start(run.run.folder, run.run.config, run.reviews.path)
    return {"folder": folder.name}


@router.get("/compare/{a}/{b}")
def compare_runs(
    state: Shared,
    a: schemas.Text,
    b: schemas.Text,
    filter: Annotated[Differ, Query(description="Which nodes.")] = "differ",
    offset: schemas.Number = 0,
    limit: schemas.Limit = 50,
) -> Json:
    """Show where two runs differ, largest distance first."""
    return compare(state.run(a), state.run(b), filter, offset, limit)


class JsonResponse(JSONResponse):
    """JSON in which characters that UTF-8 cannot encode (lone surrogates) are replaced."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def make_app(runs: Mapping[str, ServedRun]) -> FastAPI:
    """Make the application that serves some runs."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = QUICK
        yield
        app.state.shared.training.stop()

    app = FastAPI(
        title="hanme",
        version=__version__,
        description="Predictions of trained models, and the reasons for them.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
        generate_unique_id_function=lambda route: route.name,  # what generated clients call it
        default_response_class=JsonResponse,
        lifespan=lifespan,
    )
    app.state.shared = State(runs)
    for kind in (HanmeError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _refuse)
    app.include_router(router)
    app.mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False))
    return app


def _refuse(_: Request, error: Exception) -> Response:
    """Answer an error with a status and one line."""
    status, why, headers = 500, "the server failed; its log says why", {}
    if isinstance(error, HanmeError):
        status = next((s for kind, s in STATUS.items() if isinstance(error, kind)), 422)
        why, headers = str(error), {"Retry-After": "1"} if status in (429, 503) else {}
    elif isinstance(error, HTTPException):
        status, why, headers = error.status_code, str(error.detail), dict(error.headers or {})
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        status, why = 422, f"{where}: {first['msg']}"
    return JsonResponse({"error": " ".join(why.split())}, status, headers)
