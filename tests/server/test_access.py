"""Who may use the service: tokens, roles, browsers, and pages of other origins."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from servers import Server, make_queue, served, serving_process
from waiting import gone, wait_for

from allocator.queue import tokens
from allocator.queue.queue import Queue
from allocator.server.serving import _listen

COUNTS = "/api/v1/counts"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of the small cluster."""
    with served(tmp_path_factory.mktemp("access")) as server:
        yield server


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]


def test_a_wrong_token_is_refused(server: Server) -> None:
    """Unknown tokens and other schemes are refused."""
    wrong, none = (401, "wrong_token"), (401, "no_token")
    with server.client() as client:
        for header, expected in (
            ("Bearer agt_wrong", wrong),
            ("Bearer", none),
            ("Basic YTpi", none),
            ("Bearer é", wrong),
        ):
            answer = client.get(COUNTS, headers={"Authorization": header.encode()})
            assert code(answer) == expected
            assert "agt_wrong" not in answer.text + "".join(server.log)


def test_a_revoked_and_an_expired_token_end_at_once(server: Server) -> None:
    """A token that is revoked, or whose time is over, is a wrong one for the next request."""
    with Queue(server.queue) as queue, server.client() as client:

        def ask(secret: str) -> httpx.Response:
            return client.get(COUNTS, headers={"Authorization": f"Bearer {secret}"})

        now, wrong = queue.clock(), (401, "wrong_token")
        with queue.store.write() as connection:
            made, secret = tokens.add(connection, now, "short", "viewer")
            _, old = tokens.add(connection, now - 100, "old", "viewer", expires_s=now - 50)
        assert ask(secret).status_code == 200 and code(ask(old)) == wrong
        with queue.store.write() as connection:
            tokens.revoke(connection, now, made.id)
        assert code(ask(secret)) == wrong


def test_a_browser_logs_in_and_out(server: Server) -> None:
    """The form starts a session; the cookie is hidden from scripts and other sites; logging out
    needs the token of the form and ends the session."""
    with server.client(headers={"Accept": "text/html"}) as browser:
        first = browser.get("/")
        assert (first.status_code, first.headers["location"]) == (303, "/login?next=/")
        form = {"token": server.tokens["viewer"], "next": "/"}
        wrong = browser.post("/login", data={**form, "token": "agt_wrong"})
        assert wrong.status_code == 401
        answer = browser.post("/login", data=form)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert server.tokens["viewer"] not in cookie
        assert browser.get("/").status_code == 200
        assert browser.post("/logout").status_code == 403
        assert browser.get("/").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_page_of_another_origin_is_refused(server: Server, headers: dict[str, str]) -> None:
    """What another origin's page sends is refused even with a token."""
    with server.client("operator") as client:
        assert code(client.get(COUNTS, headers=headers)) == (403, "foreign_origin")


def test_every_answer_has_the_headers_of_a_safe_page(server: Server) -> None:
    """Also refusals forbid everything that is not the service's own; health needs no token."""
    with server.client() as client:
        assert client.get("/healthz").text == "ok\n"
        for path in ("/healthz", COUNTS, "/nowhere"):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers


def test_a_proxy_names_the_user(tmp_path: Path) -> None:
    """The user whom the header names has the rights of the token of that name. A change still needs
    the CSRF token of its form. The session ends when the header names somebody else. Two names, a
    name without a token, and a header from an address that is no proxy let nobody in.
    """
    name = "X-Forwarded-User"
    with served(tmp_path, user_header=name) as server, server.client() as browser:

        def ask(path: str, *names: str, method: str = "GET") -> httpx.Response:
            return browser.request(method, path, headers=[(name, one) for one in names])

        assert ask("/login", "operator").headers["location"] == "/"
        page = ask("/jobs", "operator")
        assert page.status_code == 200 and "operator" in page.text
        assert ask("/logout", "operator", method="POST").status_code == 403
        assert ask("/jobs", "viewer").status_code == 401
        for names in (("nobody",), ("operator", "viewer")):
            assert "no token of your name" in ask("/login", *names).text
    (tmp_path / "far").mkdir()
    far = served(tmp_path / "far", user_header=name, proxies=["192.0.2.1"])
    with far as server, server.client() as browser:
        assert 'name="token"' in browser.get("/login", headers={name: "operator"}).text


@pytest.mark.nightly
def test_the_controller_serves_too(tmp_path: Path) -> None:
    """`run --serve` answers from a process of its own, which ends with the controller."""
    path, made = make_queue(tmp_path)
    words = ("run", str(path), "--serve", "127.0.0.1:0", "--executor", "files", "--every", "60")
    with serving_process(path, made, *words, "--state", str(tmp_path / "actor")) as server:
        with server.client("viewer") as client:
            assert client.get(COUNTS).status_code == 200
        service = next(row["pid"] for row in server.rows() if row["event"] == "serving")
        assert server.process is not None and service != server.process.pid
        server.process.kill()
        server.process.wait()
        wait_for(lambda: gone(service))


def test_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's delay off where a socket names its protocol, and only there."""
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
