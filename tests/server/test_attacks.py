"""Attacks on a real service: each is refused and logged, and the service goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from servers import Server, make_queue, served, serving_process
from waiting import PATIENCE_S, wait_for

MEGABYTE = 1 << 20
JOB = {"job_id": "x", "model": "m", "total_work": 100, "max_gpus": 4}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path, made = make_queue(tmp_path_factory.mktemp("attacks"))
    with serving_process(path, made) as server:
        yield server


@pytest.fixture(autouse=True)
def _it_is_alive_afterwards(server: Server) -> Iterator[None]:
    """After every attack the service answers, has logged no error of its own, and no secret."""
    yield
    with server.client("operator") as client:
        asked = {"token": server.tokens["viewer"]}  # by mistake
        assert client.get("/api/v1/counts", params=asked).status_code == 200
    text = "".join(server.log)
    assert '"error"' not in text
    assert not any(secret in text for secret in server.tokens.values())


def connect(server: Server) -> socket.socket:
    """A plain connection."""
    place = urlsplit(server.url)
    assert place.hostname is not None
    return socket.create_connection((place.hostname, place.port or 0), timeout=PATIENCE_S)


def ask(server: Server, content: bytes) -> bytes:
    """Send bytes, and return the first line of the answer."""
    with connect(server) as line:
        line.sendall(content)
        return line.recv(4096).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (413, b"x" * (MEGABYTE + 1)),
        (400, b"[" * 100_000),
        (400, b'{"job_id": "x", "model": "m", "total_work": 1, "max_gpus": 1' + b"0" * 9000 + b"}"),
        *((422, body) for body in (b"{", b"[]", b"\xff\xfe")),
        *(
            (422, json.dumps(JOB | {name: value}).replace('"1e999"', "1e999").encode())
            for name, value in (
                ("total_work", "1e999"),
                ("root", 1),
                ("job_id", "a\0b"),
                ("job_id", "\ud800"),
                ("job_id", "=cmd()"),
                ("job_id", "x" * 20_000),
            )
        ),
    ],
    ids=range(12),
)
def test_a_malformed_body_is_refused(server: Server, status: int, body: bytes) -> None:
    """With the same form of error as everything else, and without the body in it."""
    headers = {"Content-Type": "application/json"}
    with server.client("operator") as client:
        answer = client.post("/api/v1/jobs", content=body, headers=headers)
    assert answer.status_code == status and answer.json()["error"]["code"]
    assert len(answer.content) < 10_000


def test_a_huge_body_without_a_length_is_cut_off(server: Server) -> None:
    """Chunks are counted as they come."""

    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    with server.client("operator") as client:
        answer = client.post("/api/v1/jobs", content=chunks())
        assert answer.status_code == 413


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /login HTTP/1.1\r\nhost: localhost\r\n"
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /api/v1/counts HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nhost: evil.example\r\n\r\n",
    ],
    ids=range(8),
)
def test_malformed_requests_are_refused(server: Server, content: bytes) -> None:
    """Each is answered with an error: bytes that are not HTTP, lengths that contradict each
    other, lines that are too long, and names under which the service is not reached.
    """
    status = int(ask(server, content).split()[1])
    assert 400 <= status < 500 or status == 501


def test_a_place_beyond_all_jobs(server: Server) -> None:
    """A number that no database holds is refused, and is no error of the service."""
    with server.client("operator") as client:
        assert client.get("/api/v1/jobs", params={"after": "9" * 20}).status_code == 422


def test_what_a_member_does_not_own_is_not_there(server: Server) -> None:
    """Names of other tenants' jobs are in no answer to a member, whatever it asks; a viewer reads
    no command, and the owner does."""
    more = {**JOB, "job_id": "s"}
    with server.client("speech") as client:
        answers = [
            client.get("/api/v1/jobs/vision-1"),
            client.get("/api/v1/jobs", params={"tenant": "vision", "state": "all"}),
            client.post("/api/v1/jobs", json={**more, "after": ["vision-2"]}),
            client.post("/api/v1/jobs", json={**JOB, "job_id": "vision-1"}),
            client.post("/api/v1/jobs", json={**more, "key": "vision-1"}),
            client.post("/api/v1/what-if", json={"values": {"jobs.vision-2.weight": 1}}),
        ]
    assert [a.status_code for a in answers] == [404, 200, 422, 409, 201, 403]
    shown = "".join(a.text for a in answers)
    # its own words: the names that it asked for
    assert (shown.count("vision-1"), shown.count("vision-2")) == (1, 2)
    for role, command in (("viewer", None), ("vision", ["train", "--of=vision"])):
        with server.client(role) as client:
            job = client.get("/api/v1/jobs/vision-1").json()
        assert job["command"] == command
        assert job["environment"] == (["SECRET"] if command else None)


def test_a_repeated_submission_is_one_job(server: Server) -> None:
    """The same body answers the same job; another body under the name is a conflict."""
    with server.client("vision") as client:
        for gpus, status, is_new in ((4, 201, True), (4, 200, False), (2, 422, None)):
            job = {**JOB, "job_id": "again", "max_gpus": gpus}
            answer = client.post("/api/v1/jobs", json=job)
            assert (answer.status_code, answer.json().get("new")) == (status, is_new)
        assert client.get("/api/v1/jobs/again").json()["environment"] == ["ALLOCATOR_USER"]


def test_no_secret_is_in_the_process_list(server: Server) -> None:
    """The command line and the environment of the service have no token."""
    assert server.process is not None
    process = Path(f"/proc/{server.process.pid}")
    text = (process / "cmdline").read_text() + (process / "environ").read_text()
    assert not any(secret in text for secret in server.tokens.values())


@pytest.mark.nightly
def test_too_many_wrong_tokens_and_requests_are_refused(tmp_path: Path) -> None:
    """429 with the time to wait; a right token of the same address waits for wrong ones too. Where
    reading is open anybody reads as a viewer, and changes nothing."""
    with served(tmp_path, rate=0.1, open_reading=True) as server:
        with server.client() as nobody:
            assert nobody.get("/api/v1/counts").status_code == 200
            assert nobody.post("/logout").status_code == 401
        with server.client("viewer") as client:
            answers = [client.get("/api/v1/counts") for _ in range(120)]
            assert [answer.status_code for answer in answers[:100]] == [200] * 100
            refused = next(answer for answer in answers if answer.status_code == 429)
            assert int(refused.headers["retry-after"]) >= 1
        with server.client() as client:
            wrong = {"Authorization": "Bearer agt_wrong"}
            statuses = [client.get("/api/v1/counts", headers=wrong).status_code for _ in range(40)]
            assert statuses[:20] == [401] * 20 and 429 in statuses
            assert client.get("/healthz").status_code == 200


@pytest.mark.nightly
@pytest.mark.parametrize("number", [2200, pytest.param(10_000, marks=pytest.mark.soak)])
def test_slow_clients_and_thousands_of_connections(server: Server, number: int) -> None:
    """Heads and bodies that do not come are dropped; thousands of connections that are opened and
    left take the places of nobody who asks something."""
    slow = connect(server)
    slow.sendall(b"GET /api/v1/counts HTTP/1.1\r\nhost: loc")
    body = connect(server)
    body.sendall(
        b"POST /login HTTP/1.1\r\nhost: localhost\r\nContent-Length: 100\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
    )
    left = []
    for opened in range(1, number + 1):
        left.append(connect(server))
        if opened % 1100 == 0:
            with server.client("viewer") as client:
                assert client.get("/api/v1/counts").status_code == 200
    with server.client("viewer") as client:
        assert client.get("/api/v1/counts").status_code == 200
    assert slow.recv(100) == b""
    assert body.recv(100).startswith(b"HTTP/1.1 408 ")
    for one in (slow, body, *left):
        one.close()
    wait_for(lambda: any(row["event"] == "dropped" for row in server.rows()))
    dropped = [row for row in server.rows() if row["event"] == "dropped"]
    assert sum(row["connections"] for row in dropped) > number - 2000
    assert all(row["open"] <= 2000 for row in dropped)


def test_followers_and_readers_that_do_not_read(server: Server) -> None:
    """Who follows the events and reads nothing holds nobody up."""
    lines = []
    for _ in range(50):
        line = connect(server)
        line.sendall(
            b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\nAuthorization: Bearer "
            + server.tokens["viewer"].encode()
            + b"\r\n\r\n"
        )
        lines.append(line)
    with server.client("operator") as client:
        for weight in range(1, 21):
            assert client.patch("/api/v1/jobs/vision-1", json={"weight": weight}).status_code == 200
    for line in lines:
        line.close()
