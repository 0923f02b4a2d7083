"""The API: a route for everything that can be asked of a run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from hanme import __version__
from hanme.common.memory import resident_mb
from hanme.errors import HanmeError
from hanme.explain import By
from hanme.serve import schemas, table
from hanme.serve.overview import Differ, Pair, overview
from hanme.serve.served import NotFound, NotSupported, ServedRun
from hanme.serve.work import Pool, QueueFull, TooLong

API = "/api/v1"
STATIC = Path(__file__).parent / "static"

THREADS, WAITING, SECONDS = 2, 128, 30.0
"""Explanations at a time, explanations that may wait, and seconds that one may take."""

QUICK = 2
"""Other requests that compute at a time: more would only wait for each other."""

MOST_FOUND = 1000
"""Maximum number of nodes that a search leaves in a table: nobody reads more."""

MOST_PAIRS = 8
"""Maximum number of comparisons in memory, each of a few numbers per node."""

STATUS: dict[type[HanmeError], int] = {
    NotFound: 404,
    NotSupported: 409,
    QueueFull: 429,
    TooLong: 503,
}


class State:
    """What all requests share."""

    def __init__(self, runs: Mapping[str, ServedRun]) -> None:
        self.runs = runs
        self.started = time.monotonic()
        self.pool = Pool(THREADS, WAITING, SECONDS)
        self.overviews = {name: overview(served) for name, served in runs.items()}
        self.infos = schemas.RunList(runs=[served.info() for served in runs.values()])
        self.pair = lru_cache(MOST_PAIRS)(lambda a, b: Pair(self.run(a), self.run(b)))

    def run(self, name: str) -> ServedRun:
        """Return a run by name."""
        if name not in self.runs:
            raise NotFound(f"no run {name!r}; there are {', '.join(self.runs)}")
        return self.runs[name]


async def _state(request: Request) -> State:
    return cast("State", request.app.state.shared)


Shared = Annotated[State, Depends(_state)]
Name = Annotated[str, InPath(description="The name of a run.", max_length=1000)]


async def _run(state: Shared, run: Name) -> ServedRun:
    return state.run(run)


def _pair(state: Shared, a: Name, b: Name) -> Pair:
    return state.pair(a, b)


OfRun = Annotated[ServedRun, Depends(_run)]
OfRuns = Annotated[Pair, Depends(_pair)]
Node = Annotated[int, InPath(ge=0, lt=2**53, description="The number of a target node.")]
Offset = Annotated[int, Query(ge=0, lt=2**53, description="Number of rows to skip.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of rows.")]


async def _query(
    run: OfRun,
    filter: Annotated[table.Which, Query(description="Which nodes.")] = "all",
    label: Annotated[str, Query(max_length=1000, description="Predicted to have this.")] = "",
    given: Annotated[str, Query(max_length=1000, description="That have this label.")] = "",
    split: Annotated[schemas.Split | None, Query(description="Of this part.")] = None,
    q: Annotated[str, Query(max_length=200, description="That this search finds.")] = "",
    sort: Annotated[
        table.Sort, Query(description="What to sort by; found: how well the search finds it.")
    ] = "found",
    of: Annotated[str, Query(max_length=1000, description="Sort by this probability.")] = "",
    descending: Annotated[bool | None, Query(description="Largest first.")] = None,
) -> table.Query:
    find, target = run.index.search.find, [run.graph.target]
    found = await run_in_threadpool(find, q, target, MOST_FOUND) if q else []
    return table.Query(
        which=filter,
        label=run.label(label),
        given=run.label(given),
        split=split,
        nodes=[hit.number for hit in found] if q else None,
        sort=sort,
        of=run.label(of) or 0,
        descending=descending,
    )


Asked = Annotated[table.Query, Depends(_query)]

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": text}
    for status, text in (
        (400, "Not a request."),
        (401, "The token is missing."),
        (403, "Another host or origin."),
        (404, "There is no such run, node, type, label or metapath."),
        (413, "The request is too long."),
        (422, "A parameter is wrong."),
        (503, "Too busy, or it takes too long."),
    )
}
UNABLE: dict[int | str, dict[str, Any]] = {
    409: {"model": schemas.Problem, "description": "These runs cannot do that."}
}
BUSY: dict[int | str, dict[str, Any]] = UNABLE | {
    429: {"model": schemas.Problem, "description": "Too many explanations are waiting."}
}

router = APIRouter(prefix=API, responses=PROBLEMS)


@router.get("/health")
async def health(state: Shared) -> schemas.Health:
    """Say that the server is there, and what it takes."""
    return schemas.Health(
        status="ok",
        version=__version__,
        seconds=time.monotonic() - state.started,
        memory_mb=resident_mb(),
        explanations=state.pool.state(),
    )


@router.get("/runs")
async def list_runs(state: Shared) -> schemas.RunList:
    """List the runs."""
    return state.infos


@router.get("/runs/{run}/overview")
async def show_overview(state: Shared, run: OfRun) -> schemas.Overview:
    """Show how good a run is, and where it is weak."""
    return state.overviews[run.name]


@router.get("/runs/{run}/metrics")
async def show_metrics(run: OfRun) -> schemas.Metrics:
    """Show the curves of training."""
    return run.metrics()


@router.get("/runs/{run}/graph")
def show_graph(run: OfRun) -> schemas.GraphInfo:
    """Show node types, relations and metapaths."""
    return run.graph_info()


@router.get("/runs/{run}/search")
async def search(
    run: OfRun,
    q: Annotated[str, Query(min_length=1, max_length=200, description="A name or an id.")],
    type: Annotated[str, Query(max_length=1000, description="Nodes of this type alone.")] = "",
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of nodes.")] = 20,
) -> schemas.Hits:
    """Find nodes by name or id, whole, by a part, or nearly."""
    return await run_in_threadpool(run.index.hits, q, type or None, limit)


@router.get("/runs/{run}/nodes/{type}/{number}")
def show_node(
    run: OfRun,
    type: Annotated[str, InPath(max_length=1000)],
    number: Annotated[int, InPath(ge=0, lt=2**53)],
    limit: Annotated[int, Query(ge=1, le=1000, description="Links per relation.")] = 100,
) -> schemas.NodeInfo:
    """Show a node of any type with its links."""
    return run.node_info(type, number, limit)


@router.get("/runs/{run}/predictions")
async def list_predictions(
    run: OfRun, query: Asked, offset: Offset = 0, limit: Limit = 50
) -> schemas.Predictions:
    """List predictions: filtered, sorted, a page at a time."""
    return await run_in_threadpool(run.table.page, query, offset, limit)


@router.post("/runs/{run}/predictions")
def find_predictions(run: OfRun, nodes: schemas.Nodes) -> schemas.Predictions:
    """Return the predictions of nodes by id or name, in their order."""
    rows = [run.table.row(run.target(node)) for node in nodes.nodes]
    return schemas.Predictions(total=len(rows), offset=0, rows=rows)


@router.get(
    "/runs/{run}/predictions.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def download_predictions(run: OfRun, query: Asked) -> StreamingResponse:
    """Download predictions as CSV, all that the filter leaves."""
    nodes = torch.from_numpy(run.table.select(query).copy())
    return StreamingResponse(
        run.table.prediction.take(nodes).csv(),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="predictions.csv"'},
    )


@router.get("/runs/{run}/predictions/{node}")
async def show_prediction(run: OfRun, node: Node) -> schemas.Prediction:
    """Show the prediction of a node."""
    return run.table.row(run.target(node))


@router.get("/runs/{run}/explanations/{node}", responses=BUSY)
async def explain(
    request: Request,
    state: Shared,
    run: OfRun,
    node: Node,
    label: Annotated[str, Query(max_length=1000, description="Default: the likeliest.")] = "",
    against: Annotated[
        str, Query(max_length=1000, description="Why the label, and not this one.")
    ] = "",
    top: Annotated[int, Query(ge=1, le=200, description="Maximum number of instances.")] = 20,
    by: Annotated[By, Query(description="What they are ranked by.")] = "part",
    metapath: Annotated[str, Query(max_length=1000, description="Of this metapath alone.")] = "",
) -> schemas.ExplanationInfo:
    """Explain why a node got, or did not get, a label."""
    return await state.pool.run(
        request,
        lambda pause: run.explain(
            node, label=label, against=against, top=top, by=by, metapath=metapath, pause=pause
        ),
    )


@router.post("/runs/{run}/changes/{node}", responses=BUSY)
async def change(
    request: Request, state: Shared, run: OfRun, node: Node, changes: schemas.Changes
) -> schemas.Changed:
    """Say what the model would predict without some instances or links, or with other links."""
    return await state.pool.run(request, lambda pause: run.change(node, changes, pause))


@router.get("/compare/{a}/{b}", responses=UNABLE)
def compare(
    pair: OfRuns,
    filter: Annotated[Differ, Query(description="Which nodes.")] = "differ",
    offset: Offset = 0,
    limit: Limit = 50,
) -> schemas.Comparison:
    """Show where two runs differ, largest distance first."""
    return pair.compare(filter, offset, limit)


@router.get("/compare/{a}/{b}/{node}", responses=UNABLE)
def compare_node(pair: OfRuns, node: Node) -> schemas.Difference:
    """Show what two runs say of a node."""
    return pair.row(pair.a.target(node))


def make_app(runs: Mapping[str, ServedRun]) -> FastAPI:
    """Make the application that serves some runs."""
    state = State(runs)

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = QUICK
        yield
        state.pool.close()

    app = FastAPI(
        title="hanme",
        version=__version__,
        description="Predictions of trained models, and the reasons for them.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
        generate_unique_id_function=lambda route: route.name,  # what generated clients call it
        lifespan=alive,
    )
    app.state.shared = state
    app.add_exception_handler(HanmeError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(RequestValidationError, _refuse_wrong)
    app.include_router(router)
    app.mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False))
    return app


def _problem(status: int, why: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    text = " ".join(schemas.writable(why).split())
    return JSONResponse({"error": text}, status, dict(headers or {}))


def _refuse(_: Request, error: Exception) -> Response:
    status = next((s for kind, s in STATUS.items() if isinstance(error, kind)), 422)
    return _problem(status, str(error), {"Retry-After": "1"} if status in (429, 503) else None)


def _refuse_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, str(error.detail), error.headers)


def _refuse_wrong(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return _problem(422, f"{where}: {first['msg']}")
