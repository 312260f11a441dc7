"""The documented API is the real one: the OpenAPI document, its page, the examples with curl."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from places import ROOT
from servers import Server, add_tokens, served, serving

from allocator.io.snapshots import read_snapshot
from allocator.queue.queue import Queue
from allocator.server.api import build_document

DEMO = ROOT / "data" / "snapshots" / "demo"
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
WITH_CURL, _, WITH_A_CLIENT = PAGE.partition("## A client from the document")
EXAMPLES = [line for line in WITH_CURL.splitlines() if line.startswith("curl ")]


def test_the_document_is_valid() -> None:
    """By the schema of OpenAPI 3.1, and the rules that the schema cannot say. Each call is
    described, and examples fit their schema."""
    document = build_document()
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert document["openapi"] == "3.1.0" and document["security"] == [{"token": []}]
    schemas = document["components"]["schemas"]
    for call in (call for path in document["paths"].values() for call in path.values()):
        assert call["description"] and call["tags"]
        assert any("ErrorAnswer" in json.dumps(one) for one in call["responses"].values())
    for name, schema in schemas.items():
        for example in schema.get("examples", ()):
            whole = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
            Draft202012Validator(whole).validate(example)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of the shipped cluster, and the file with the token of an operator next to it."""
    folder = tmp_path_factory.mktemp("service")
    with Queue.create(folder / "queue.db", read_snapshot(DEMO)) as queue:
        made = add_tokens(queue)
    with serving(folder / "queue.db", made) as server:
        line = f'header = "Authorization: Bearer {server.tokens["operator"]}"\n'
        (folder / "auth").write_text(line)
        yield server


def in_shell(service: Server, text: str) -> subprocess.CompletedProcess[str]:
    """Run what the page shows, next to the file with the token."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euc", text],
        cwd=service.queue.parent,
        env={**os.environ, "URL": service.url, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_examples_with_curl_run(service: Server) -> None:
    """Each as it stands in the page, on the shipped cluster, answers without an error."""
    assert len(EXAMPLES) >= 10
    for line in EXAMPLES:
        done = in_shell(service, line)
        if "/events" in line:
            assert re.match(r"id: \w+-\d+\nevent: start\n", done.stdout), line
        else:
            assert done.returncode == 0, (line, done.stderr)
            assert "error" not in json.loads(done.stdout), line


@pytest.mark.nightly
def test_a_generated_client_submits_lists_and_shows_a_job(
    service: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands and the code of the page: another tool makes a client from the document."""
    commands, code = re.findall(
        r"^```(?:bash|python)\n(.*?)^```$", WITH_A_CLIENT, re.MULTILINE | re.DOTALL
    )
    assert in_shell(service, commands).returncode == 0
    monkeypatch.setenv("URL", service.url)
    monkeypatch.setenv("TOKEN", service.tokens["operator"])
    monkeypatch.syspath_prepend(service.queue.parent)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["submitted"].job_id == "bert-8"
    assert [job.job_id for job in names["jobs"]][-1] == "bert-8"
    assert (names["shown"].model, names["shown"].state) == ("bert", "queued")
    with Queue(service.queue) as queue:
        assert queue.job("bert-8").state == "queued"


def test_a_follower_gets_what_it_missed(tmp_path: Path) -> None:
    """With the number of its last event; an unknown number is answered by `reset`."""
    with served(tmp_path) as server, server.client("vision") as client:

        def follow(last: str, kind: str) -> tuple[str, dict[str, Any]]:
            """The number of the first event of a kind after the last one, and what it says."""
            headers, name = {"Last-Event-ID": last}, ""
            with client.stream("GET", "/api/v1/events", headers=headers) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                lines = answer.iter_lines()
                for line in lines:
                    name = line.removeprefix("id: ") if line.startswith("id: ") else name
                    if line == f"event: {kind}":
                        return name, json.loads(next(lines).removeprefix("data: "))
            raise AssertionError("the stream ended")

        follow("abc-1", "reset")
        name, _ = follow("", "start")
        with server.client("operator") as operator:
            operator.post("/api/v1/jobs/speech-1/hold")
            operator.post("/api/v1/jobs/vision-1/hold")
        _, job = follow(name, "job")
        assert (job["job_id"], job["state"]) == ("vision-1", "held")
