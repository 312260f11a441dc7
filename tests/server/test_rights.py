"""Every call as every role, on a real service: what is allowed, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from fastapi.routing import APIRoute
from servers import Server, served

from allocator.server import pages
from allocator.server.app import create_app
from allocator.server.openapi import build_document

JOB = {"model": "m", "total_work": 1e6, "max_gpus": 4}
ROLES = (None, "viewer", "vision", "speech", "operator")
READ = (401, 200, 200, 200, 200)
OWN = (401, 200, 200, 404, 200)  # a job of tenant vision
WRITE = (401, 403, 200, 404, 200)
OPERATE = (401, 403, 403, 403, 200)
Row = tuple[tuple[int, ...], Any]
API: Mapping[tuple[str, str], Row] = {  # method and path: status by role, and the body
    ("GET", "/counts"): (READ, None),
    ("GET", "/openapi.json"): (READ, None),
    ("GET", "/jobs"): (READ, None),
    ("POST", "/jobs"): (
        (401, 403, 201, 403, 200),
        {**JOB, "job_id": "vision-2", "tenant": "vision"},
    ),
    ("GET", "/jobs/{job_id}"): (OWN, None),
    ("PATCH", "/jobs/{job_id}"): (WRITE, {"weight": 2}),
    ("POST", "/jobs/{job_id}/hold"): (WRITE, None),
    ("POST", "/jobs/{job_id}/release"): (WRITE, None),
    ("POST", "/jobs/{job_id}/retry"): (WRITE, None),
    ("POST", "/jobs/{job_id}/cancel"): (WRITE, None),
    # it is cancelled by now: who may ask is told so
    ("GET", "/jobs/{job_id}/explanation"): ((401, 409, 409, 404, 409), None),
    ("GET", "/pools"): (READ, None),
    ("PATCH", "/pools/{pool}"): (OPERATE, {"gpus": 8}),
    ("GET", "/nodes"): (READ, None),
    ("POST", "/nodes/{node}/{state}"): (OPERATE, None),
    ("GET", "/tenants"): (READ, None),
    ("PATCH", "/tenants/{tenant}"): (OPERATE, {"weight": 2}),
    ("GET", "/spend"): (READ, None),
    ("GET", "/rounds"): (READ, None),
    ("GET", "/rounds/{number}"): (READ, None),
    ("GET", "/rounds/{first}/compare/{second}"): (READ, None),
    ("GET", "/plan"): (READ, None),
    ("POST", "/what-if"): (
        (401, 400, 400, 403, 400),  # who may ask is told that there is no such column
        {"values": {"jobs.vision-1.height": 5}},
    ),
    ("GET", "/events"): (READ, None),
}
NAMES = {
    "job_id": "vision-1",
    "pool": "a",
    "node": "n1",
    "state": "drain",
    "tenant": "vision",
    "number": "1",
    "first": "1",
    "second": "2",
}
# method and path
NEED_NO_TOKEN = {("GET", "/healthz"), ("GET", "/login"), ("POST", "/login")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("rights"), rounds=2) as server:
        yield server


@pytest.fixture(scope="module")
def calls(server: Server) -> set[tuple[str, str]]:
    """Every method and path that the application answers, those of included routers too."""
    app = create_app(str(server.queue))
    app.state.service.queue.close()
    routes = [*app.routes, *pages.router.routes]
    found = {
        (method, route.path_format)
        for route in routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    documented = {
        (method.upper(), path)
        for path, calls in build_document()["paths"].items()
        for method in calls
    }
    return found | documented


def test_every_call_of_the_api_has_a_row(calls: set[tuple[str, str]]) -> None:
    """A new call needs a row that says who may make it."""
    known = {(method, f"/api/v1{path}") for method, path in API}
    assert {call for call in calls if call[1].startswith("/api/")} == known


def test_every_call_as_each_role(server: Server) -> None:
    """The status is that of the table; a refusal has a code and changes nothing. The calls are made
    in the order of the table, as one needs what another one did.
    """
    with ExitStack() as stack:
        clients = {role: stack.enter_context(server.client(role)) for role in ROLES}
        for (method, path), (expected, body) in API.items():
            url = f"/api/v1{path}".format(**NAMES)
            for (role, client), status in zip(clients.items(), expected, strict=True):
                with client.stream(method, url, json=body) as answer:
                    assert answer.status_code == status, (method, path, role)
                    if status >= 400:
                        answer.read()
                        assert answer.json()["error"]["code"]
                        assert answer.json()["schema_version"] == 1


def test_all_else_needs_a_token_too(server: Server, calls: set[tuple[str, str]]) -> None:
    """Without a token no page shows anything, and nothing can be written."""
    with server.client() as nobody:
        for method, path in sorted(calls - NEED_NO_TOKEN):
            if path.startswith("/api/"):
                continue
            answer = nobody.request(method, path.replace("{", "").replace("}", ""))
            assert answer.status_code == 401, (method, path)
