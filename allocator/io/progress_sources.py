"""Progress of jobs that do not report it themselves: from what they log, or from their metrics.

Variables of the job say which:

    ALLOCATOR_PROGRESS_LOG      a regular expression with a group "work" or "step", searched for
                                in each line of its output; a group "safe" is the part of the work
                                that a checkpoint holds
    ALLOCATOR_PROGRESS_URL      address of its metrics as text of Prometheus
    ALLOCATOR_PROGRESS_METRIC   name of the metric that counts its work

Nobody trusts what is read here: lines, chunks, answers and the time of a search are limited.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from allocator.errors import UsageError
from allocator.io.tables.limited_reader import open_regular

LOG, URL, METRIC = (f"ALLOCATOR_PROGRESS_{name}" for name in ("LOG", "URL", "METRIC"))
FIELDS = {"progress_log": LOG, "progress_url": URL, "progress_metric": METRIC}
"""What a job that users gave to a cluster says of its source, and the variable that means it."""
LONGEST_PATTERN = 500  # characters
LONGEST_LINE = 2000  # bytes of a line that are searched
MOST_LINES = 500  # that are searched at once, the newest first
CHUNK = 1 << 18  # most bytes of a log that are read at once
MOST_ANSWER = 1 << 20  # bytes of metrics
SEARCH_S = 0.2  # of this thread, for the lines of one chunk
TRIES = 3  # searches that may take too long before the pattern is given up
FETCH_S = 5.0  # for one answer with metrics

Progress = tuple[float, float]
"""(work done in all, the part of it that a checkpoint holds)."""


@dataclass(frozen=True)
class Metric:
    """A metric that counts the work of a job.

    Parameters
    ----------
    url, name : str
        Address of the metrics, and the name of the metric there.
    """

    url: str
    name: str

    def move_to(self, machine: str) -> Metric:
        """Return the metric of the same name, port and path on another machine.

        Examples
        --------
        >>> Metric("http://localhost:8000/metrics", "steps").move_to("n1").url
        'http://n1:8000/metrics'
        """
        parts = urlsplit(self.url)
        place = machine if parts.port is None else f"{machine}:{parts.port}"
        return Metric(parts._replace(netloc=place).geturl(), self.name)

    def find(self, text: bytes) -> Progress | None:
        """Return the largest value of the metric in a Prometheus text, None if it is not there.

        Examples
        --------
        >>> text = b'# TYPE steps counter\\nsteps{rank="0"} 12\\nsteps{rank="1"} 11\\n'
        >>> Metric("http://localhost:8000/metrics", "steps").find(text)
        (12.0, 12.0)
        """
        values = []
        for line in text[:MOST_ANSWER].decode("utf-8", "replace").splitlines():
            words = line.removeprefix(self.name)
            if words != line and words[:1] in ("{", " ", "\t"):
                cells = words.rpartition("}")[2].split()
                value = _number(cells[0]) if cells else None
                values += [] if value is None else [(value, value)]
        return max(values, default=None)

    def fetch(self) -> Progress | None:
        """Return the progress that is served, None if it is not within the limits."""
        from http.client import HTTPException
        from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

        host = urlsplit(self.url).netloc

        class SameServer(HTTPRedirectHandler):
            def redirect_request(
                self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str
            ) -> Any:
                if urlsplit(newurl).netloc != host:
                    return None  # who serves metrics does not choose whom else this process asks
                return super().redirect_request(req, fp, code, msg, headers, newurl)

        try:
            opener = build_opener(ProxyHandler({}), SameServer())
            with opener.open(self.url, timeout=FETCH_S) as answer:
                content = read_answer(answer)
        except (OSError, ValueError, HTTPException):
            return None
        return self.find(content or b"")


def as_variables(said: Mapping[str, object]) -> dict[str, str]:
    """Return what a job of a cluster says of its source, as variables of a job.

    Examples
    --------
    >>> as_variables({"progress_metric": "steps", "model": "bert"})
    {'ALLOCATOR_PROGRESS_METRIC': 'steps'}
    """
    return {variable: str(said[name]) for name, variable in FIELDS.items() if name in said}


def read_source(variables: Mapping[str, str]) -> LogPattern | Metric | None:
    """Return where the progress of a job with these variables comes from; None: it reports it.

    Raises
    ------
    UsageError
        If the variables make no sense.

    Examples
    --------
    >>> read_source({"ALLOCATOR_PROGRESS_LOG": r"step (?P<step>\\d+)"}).find(b"step 7\\n")
    (7.0, 7.0)
    >>> read_source({}) is None
    True
    """
    if LOG in variables and (URL in variables or METRIC in variables):
        raise UsageError(f"{LOG} and {URL} are two sources of progress; a job has one")
    if LOG in variables:
        return LogPattern(variables[LOG])
    if URL not in variables and METRIC not in variables:
        return None
    url = variables.get(URL, "")
    name = variables.get(METRIC, "")
    try:
        parts = urlsplit(url)
        # a path that goes up could leave the pod through which Kubernetes is asked
        goes_up = ".." in unquote(parts.path).split("/")
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not goes_up
        _ = parts.port
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UsageError(f'{URL} is "{url}", which is no address such as http://localhost:8000/')
    if not name or not name.replace("_", "a").replace(":", "a").isalnum():
        raise UsageError(f'{METRIC} is "{name}", which is no name of a metric')
    return Metric(url, name)


class LogPattern:
    """A regular expression that finds the progress in lines of a log.

    Parameters
    ----------
    pattern : str
        The expression, with a group named "work" or "step", and perhaps one named "safe".

    Raises
    ------
    UsageError
        If it is no such expression.
    """

    def __init__(self, pattern: str) -> None:
        import regex  # few jobs need it, and it can limit the time of a search

        if len(pattern) > LONGEST_PATTERN:
            raise UsageError(f"{LOG} is longer than {LONGEST_PATTERN} characters")
        try:
            self._regex: Any = regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError) as error:
            raise UsageError(f'{LOG} is "{pattern}": {error}') from error
        if not {"work", "step"} & set(self._regex.groupindex):
            raise UsageError(f'{LOG} is "{pattern}", which has no group (?P<work>...) or (?P<step>')
        self._tries = TRIES

    @property
    def is_given_up(self) -> bool:
        """Return whether its searches took too long too often."""
        return self._tries <= 0

    def find(self, text: bytes) -> Progress | None:
        """Return the progress in the last line that has one, None if there is none."""
        # not the clock on the wall: while others use the machine no line may count as searched
        until = time.thread_time() + SEARCH_S
        for line in reversed(text.replace(b"\r", b"\n").split(b"\n")[-MOST_LINES:]):
            if self.is_given_up:
                return None
            left = until - time.thread_time()
            try:
                if left <= 0:
                    raise TimeoutError
                words = line[:LONGEST_LINE].decode("utf-8", "replace")
                match = self._regex.search(words, timeout=left)
            except TimeoutError:
                self._tries -= 1
                return None
            if match is not None and (progress := _read_groups(match.groupdict())):
                return progress
        return None


def _read_groups(groups: Mapping[str, str | None]) -> Progress | None:
    done = _number(groups.get("work") or groups.get("step"))
    if done is None:
        return None
    safe = done if "safe" not in groups else _number(groups["safe"])
    return done, min(done, safe or 0.0)


def _number(text: str | None) -> float | None:
    """Return a number of at least 0, None for all else."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


@dataclass
class LogFile:
    """A log that grows, of which each byte is read once.

    Parameters
    ----------
    path : Path
        The file.
    offset : int
        Bytes at its beginning that are not read, unless it gets shorter.
    owner : int, optional
        User id to which the file has to belong; it is then no symbolic link either. None: any.
    """

    path: Path
    offset: int = 0
    owner: int | None = None
    _rest: bytes = field(default=b"", init=False)

    def read_lines(self, *, is_over: bool = False) -> bytes:
        """Return the lines that are new; of much at once only the end.

        A line without its end waits for it, unless nothing more will come (`is_over`).
        """
        try:
            with open_regular(self.path, self.owner) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:
                    self.offset = 0
                    self._rest = b""
                start = max(self.offset, size - CHUNK)
                if start > self.offset:
                    self._rest = b""
                file.seek(start)
                data = file.read(CHUNK)
        except OSError:
            return b""
        self.offset = start + len(data)
        lines, end, rest = (self._rest + data).replace(b"\r", b"\n").rpartition(b"\n")
        self._rest = rest[:LONGEST_LINE]
        return lines + end + rest if is_over else lines + end


def read_answer(answer: Any) -> bytes | None:
    """Return the content of an answer of HTTP, None if it is too large or takes too long."""
    until = time.monotonic() + FETCH_S
    content = b""
    while len(content) < MOST_ANSWER and time.monotonic() < until:
        # one read of the socket: a server that says little at a time takes no longer
        part = answer.read1(1 << 16)
        if not part:
            return content
        content += part
    return None
