"""Ask the dashboard of a Ray cluster over HTTP; the package `ray` is not needed.

No answer is never an empty list: what fails, takes too long or is no JSON raises `RayUnreachable`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

from allocator.clusters.adapter import ClusterUnreachable, Refused
from allocator.errors import UsageError
from allocator.io.progress_sources import read_answer
from allocator.objects import Record

ADDRESS = "http://127.0.0.1:8265"
VARIABLE = "RAY_API_SERVER_ADDRESS"  # as `ray job` reads it
TOKEN = "RAY_AUTH_TOKEN"  # as Ray's own clients read it
TIMEOUT_S = 10.0
LINES = 200  # of a log
MOST = 10_000  # objects of one answer, which is also the most that Ray gives
ANSWERS = ("jobs", "nodes", "actors", "placement_groups", "tasks")


class RayUnreachable(ClusterUnreachable):
    """Report a Ray that does not answer. What was asked may have been done, or may not.

    Examples
    --------
    >>> RayUnreachable("no answer within 10 s").exit_code
    1
    """


class RayRefused(Refused, RayUnreachable):
    """Report a request that Ray answered with an error."""


class RayApi:
    """Send requests to the dashboard of a cluster.

    Parameters
    ----------
    address : str, optional
        Address of the dashboard; default: $RAY_API_SERVER_ADDRESS, or port 8265 of this machine.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = (address or os.environ.get(VARIABLE) or ADDRESS).rstrip("/")
        if not self.address.startswith(("http://", "https://")):
            raise UsageError(
                f'the address of a dashboard begins with http:// or https://: "{self.address}"'
            )
        self._open = build_opener(ProxyHandler({})).open

    def list_records(self, kind: str) -> list[Record]:
        """Return all jobs, nodes, actors, placement groups or running tasks."""
        query: list[tuple[str, object]] = [("detail", 1), ("limit", MOST)]
        if kind == "tasks":  # without filters Ray also lists what has ended
            query += [
                ("filter_keys", "state"),
                ("filter_predicates", "="),
                ("filter_values", "RUNNING"),
            ]
        path = "/api/jobs/" if kind == "jobs" else f"/api/v0/{kind}?{urlencode(query)}"
        return unwrap_list(self._send("GET", path), kind)

    def has_job(self, submission_id: str) -> bool:
        """Return whether Ray knows a job of this id."""
        try:
            self._send("GET", f"/api/jobs/{quote(submission_id, safe='')}")
        except RayRefused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def read_log(self, submission_id: str, node_id: str) -> bytes:
        """Return the last lines that the entrypoint of a job printed; b"" if they are too long."""
        query = {"submission_id": submission_id, "node_id": node_id, "lines": LINES, "timeout": 2}
        path = f"/api/v0/logs/file?{urlencode(query)}"
        return self._send("GET", path, read=read_answer) or b""

    def submit(self, request: Record) -> None:
        """Submit a job under its own id. Raises RayRefused for an id that Ray knows."""
        self._send("POST", "/api/jobs/", request)

    def stop(self, submission_id: str) -> None:
        """Have a running job ended: SIGTERM, and SIGKILL after RAY_JOB_STOP_WAIT_TIME_S.

        A job that waits is not ended by this.
        """
        self._send("POST", f"/api/jobs/{quote(submission_id, safe='')}/stop")

    def _send(
        self,
        method: str,
        path: str,
        body: Record | None = None,
        read: Callable[[Any], Any] = json.load,
    ) -> Any:
        headers = {"Content-Type": "application/json"}
        if token := os.environ.get(TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        content = None if body is None else json.dumps(body).encode()
        request = Request(self.address + path, content, headers, method=method)
        try:
            with self._open(request, timeout=TIMEOUT_S) as answer:
                return read(answer)
        except HTTPError as error:
            # the last line of Ray's trace that holds more than a dot
            lines = map(str.strip, error.read(20_000).decode("utf-8", "replace").splitlines())
            words = [line for line in lines if len(line) > 1] or ["an error without words"]
            raise RayRefused(error.code, words[-1]) from error
        except (OSError, ValueError, HTTPException) as error:
            raise RayUnreachable(f"Ray at {self.address}: {error}") from error


def unwrap_list(answer: Any, kind: str) -> list[Record]:
    """Return the list in an answer: that of jobs, or one of the state API.

    Raises RayUnreachable for another shape, and for an answer that is not complete.
    """
    is_whole = True
    if kind != "jobs":
        try:
            data = answer["data"]["result"]
            answer = data["result"]
            is_whole = data["num_filtered"] <= len(answer)
        except (KeyError, TypeError) as error:
            raise RayUnreachable(f"Ray gave no list of {kind}") from error
        is_whole = is_whole and not data.get("partial_failure_warning")
    if not isinstance(answer, list) or not all(isinstance(record, dict) for record in answer):
        raise RayUnreachable(f"Ray gave no list of {kind}")
    if not is_whole:
        raise RayUnreachable(f"Ray gave only some of its {kind}")
    return answer


def read_answers(folder: Path) -> dict[str, Sequence[Record]]:
    """Return recorded answers: jobs.json, nodes.json and so on, as Ray gave them.

    Raises
    ------
    UsageError
        If one cannot be read.
    """
    answers: dict[str, Sequence[Record]] = {}
    for kind in ANSWERS:
        path = folder / f"{kind}.json"
        try:
            answers[kind] = unwrap_list(json.loads(path.read_text(encoding="utf-8")), kind)
        except (OSError, ValueError, RayUnreachable) as error:
            raise UsageError(f'"{path}" cannot be read: {error}') from error
    return answers
