"""Keep the progress file of a job that does not write it itself, in its supervisor."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from allocator.errors import UsageError
from allocator.executors import report
from allocator.io.progress_sources import (
    LOG,
    URL,
    LogFile,
    LogPattern,
    Metric,
    Progress,
    fetch_metric,
    read_source,
)

LOOK_S = 1.0  # seconds between two looks at the logs
FETCH_EVERY_S = 10.0  # seconds between two answers with metrics


class ProgressReader:
    """The progress of one allocation, from its logs or its metrics.

    `logs` are the files that its job writes, and `progress` the file in which its progress belongs.
    `looked_s` is when it was read last, on the monotonic clock.
    """

    def __init__(
        self, source: LogPattern | Metric, logs: tuple[LogFile, ...], progress: Path
    ) -> None:
        self._source = source
        self._logs = logs
        self._progress = progress
        self.looked_s = -math.inf
        self._written: Progress | None = None
        self._metric: float | None = None
        self._fetched_s = -math.inf
        self._fetching: threading.Thread | None = None

    def update(self, *, is_over: bool = False) -> None:
        """Write the progress if it is another one; look at most once a second until all is over."""
        if not is_over and time.monotonic() < self.looked_s + LOOK_S:
            return
        self.looked_s = time.monotonic()
        seen: Progress | None
        if isinstance(self._source, LogPattern):
            found = [self._source.find(one.read_lines(is_over=is_over)) for one in self._logs]
            seen = max((one for one in found if one is not None), default=None)
        else:
            is_busy = self._fetching is not None and self._fetching.is_alive()
            if not is_busy and self.looked_s >= self._fetched_s + FETCH_EVERY_S:
                self._fetched_s = self.looked_s
                # in a thread, so that a slow answer holds nothing up
                self._fetching = threading.Thread(
                    target=self._fetch, args=(self._source,), daemon=True
                )
                self._fetching.start()
            seen = None if self._metric is None else (self._metric, self._metric)
        if seen is not None and seen != self._written:
            try:
                report.write(self._progress, *seen)
            except OSError:  # a full disk: the next look tries again
                return
            self._written = seen

    def _fetch(self, metric: Metric) -> None:
        value = fetch_metric(metric)
        if value is not None:
            self._metric = value


def make_reader(
    environment: Mapping[str, str], logs: tuple[LogFile, ...], progress: Path
) -> ProgressReader | None:
    """Return the reader of a job with this environment, None if it reports its progress itself."""
    source = None
    if LOG in environment or URL in environment:
        with suppress(UsageError):  # such a job could not be submitted
            source = read_source(environment)
    return None if source is None else ProgressReader(source, logs, progress)
