"""The API does what its OpenAPI document says, and never fails."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks

from hanme.serve.app import router
from serving import Server

pytestmark = pytest.mark.slow
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
ROUTES = sorted(
    (route.path, method) for route in router.routes for method in getattr(route, "methods", ())
)
KNOWN = {"run": "planted", "a": "planted", "b": "paper", "type": "movie"}


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    headers = {"Authorization": f"Bearer {server.token}"}
    return schemathesis.openapi.from_url(f"{server.api}/openapi.json", headers=headers)


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        (*route, mode)
        for route in ROUTES
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        if mode is GenerationMode.POSITIVE or "{" in route[0]  # else nothing can be wrong
    ],
)
def test_whatever_is_asked_is_answered_as_documented(
    document: Any, server: Server, path: str, method: str, mode: GenerationMode
) -> None:
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    @settings(
        max_examples=8,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            for name, value in case.path_parameters.items():
                number = value % 150 if isinstance(value, int) else 3
                case.path_parameters[name] = KNOWN.get(name, number)
        answer = case.call_and_validate(checks=CHECKS, session=session)
        assert mode is GenerationMode.POSITIVE or 400 <= answer.status_code < 500

    with requests.Session() as session:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {server.token}"
        ask()


def test_every_route_is_in_the_document(document: Any) -> None:
    there = [operation.ok() for operation in document.get_all_operations()]
    assert sorted((o.path, o.method.upper()) for o in there) == ROUTES
