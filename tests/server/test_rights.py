"""Every call as every role, on a real service: what is allowed, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fastapi.routing import APIRoute
from servers import Server, served
from text_tables import cases, cells

from allocator.server import pages
from allocator.server.api import build_document
from allocator.server.app import create_app

ROLES = (None, "viewer", "vision", "speech", "operator")
READ = "401 200 200 200 200"
OWN = "401 200 200 404 200"  # a job of tenant vision
WRITE = "401 403 200 404 200"
OPERATE = "401 403 403 403 200"
# method, path, status by role, and the body, if any; who may ask for the explanation of a job that
# is cancelled by now, or for a column that is none, is told so
API = cases(f"""
GET /counts -> {READ}
GET /openapi.json -> {READ}
GET /jobs -> {READ}
POST /jobs -> 401 403 201 403 200 -> {{"job_id": "vision-2", "tenant": "vision", "model": "m", \
"total_work": 1e6, "max_gpus": 4}}
GET /jobs/{{job_id}} -> {OWN}
PATCH /jobs/{{job_id}} -> {WRITE} -> {{"weight": 2}}
POST /jobs/{{job_id}}/hold -> {WRITE}
POST /jobs/{{job_id}}/release -> {WRITE}
POST /jobs/{{job_id}}/retry -> {WRITE}
POST /jobs/{{job_id}}/cancel -> {WRITE}
GET /jobs/{{job_id}}/explanation -> 401 409 409 404 409
GET /pools -> {READ}
PATCH /pools/{{pool}} -> {OPERATE} -> {{"gpus": 8}}
GET /nodes -> {READ}
POST /nodes/{{node}}/{{state}} -> {OPERATE}
GET /reservations -> {READ}
PATCH /reservations/{{reservation}} -> {OPERATE} -> {{"pool": "b", "gpus": 1, "until_s": "6h"}}
DELETE /reservations/{{reservation}} -> {OPERATE}
GET /tenants -> {READ}
PATCH /tenants/{{tenant}} -> {OPERATE} -> {{"weight": 2}}
GET /spend -> {READ}
GET /rounds -> {READ}
GET /rounds/{{number}} -> {READ}
GET /rounds/{{first}}/compare/{{second}} -> {READ}
GET /plan -> {READ}
POST /what-if -> 401 400 400 403 400 -> {{"values": {{"jobs.vision-1.height": 5}}}}
GET /events -> {READ}
""")
NAMES = cells(
    "job_id=vision-1 pool=a node=n1 state=drain tenant=vision reservation=r number=1 first=1"
    " second=2"
)
# name, body, and what the answer says
RESERVATIONS = cases("""
none -> {"pool": "b", "gpus": 1} -> changed
tenant -> {"pool": "b", "gpus": 1, "tenant": "vision"} -> changed
job -> {"pool": "b", "gpus": 1, "job_id": "speech-1"} -> changed
none -> {"at_s": "soon"} -> is no time
new -> {"pool": "b", "gpus": 1, "job_id": "nine"} -> has no job
""")
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
    known = {row[0].replace(" ", " /api/v1") for row in API}
    assert {" ".join(call) for call in calls if call[1].startswith("/api/")} == known


def test_every_call_as_each_role(server: Server) -> None:
    """The status is that of the table; a refusal has a code and changes nothing. The calls are made
    in the order of the table, as one needs what another one did.
    """
    with ExitStack() as stack:
        clients = [stack.enter_context(server.client(role)) for role in ROLES]
        for called, expected, *body in API:
            method, path = called.split()
            url, sent = f"/api/v1{path}".format(**NAMES), json.loads(body[0]) if body else None
            for client, status in zip(clients, expected.split(), strict=True):
                with client.stream(method, url, json=sent) as answer:
                    assert answer.status_code == int(status), (called, client.headers)
                    if answer.is_error:
                        answer.read()
                        assert answer.json()["error"]["code"]
                        assert answer.json()["schema_version"] == 1


def test_a_member_sees_what_is_kept_for_it_or_for_nobody(server: Server) -> None:
    """A reservation begins now if nobody says when; what is wrong with one is said."""
    with server.client("operator") as operator:
        operator.base_url = f"{server.url}/api/v1/reservations/"
        for name, sent, words in RESERVATIONS:
            answer = operator.patch(name, json=json.loads(sent))
            assert answer.is_success == (words == "changed") and words in answer.text
        assert operator.delete("new").status_code == 404
    for role, seen in cells("viewer=none,tenant,job vision=none,tenant speech=none,job").items():
        with server.client(role) as client:
            rows = client.get("/api/v1/reservations").json()["reservations"]
        assert [row["reservation"] for row in rows] == seen.split(",")
        assert all(abs(row["at_s"] - time.time()) < 600 for row in rows)


def test_all_else_needs_a_token_too(server: Server, calls: set[tuple[str, str]]) -> None:
    """Without a token no page shows anything, and nothing can be written."""
    with server.client() as nobody:
        for method, path in sorted(calls - NEED_NO_TOKEN):
            if path.startswith("/api/"):
                continue
            answer = nobody.request(method, path.replace("{", "").replace("}", ""))
            assert answer.status_code == 401, (method, path)
