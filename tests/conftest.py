"""What holds for every test: default signals, a time limit, no wait for the disk, no warning of a
library, in child processes either, the same random examples in every run, and a word about what was
not tested.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from itertools import chain, groupby

import pytest
from hypothesis import HealthCheck, settings
from machine import NOT_TESTED
from places import ROOT

SOAK_LIMIT_S = 4 * 3600
# folders of tests that watch real daemons, signals and clocks, on a machine that may be busy
REAL = {ROOT / "tests" / name for name in ("cli", "clusters", "controller", "executors", "server")}

# A run finds a new failing example only with --hypothesis-profile=soak, and no example is timed.
NOT_TIMED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("suite", NOT_TIMED, derandomize=True)
settings.register_profile("soak", NOT_TIMED)
settings.load_profile("suite")


def pytest_configure() -> None:
    """Take SIGINT as a terminal's child does. Under nohup, or in the background of a script, it is
    ignored, every child inherits that, and the tests that interrupt a child would wait for ever.

    The configuration of whoever runs the tests does not count. Child processes raise what numpy
    warns about; pyproject.toml has this process raise every warning.
    """
    os.environ.setdefault("PYTHONWARNINGS", "error::RuntimeWarning")
    os.environ["XDG_CONFIG_HOME"] = os.devnull  # no configuration of whoever runs the tests
    os.environ.pop("ALLOCATOR_QUEUE", None)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _no_wait_for_the_disk() -> Iterator[None]:
    """Let this process wait for no disk: tests kill processes, they do not cut the power."""
    from allocator.queue.database import connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "SYNCHRONOUS", "OFF")
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True)
def _ray_of_one_test() -> Iterator[None]:
    """Let the next test have the Ray that the tests share, if this one has had it."""
    yield
    if module := sys.modules.get("ray_cluster"):
        module.let_go()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while thousands of tests are collected, nor among them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the long runs their own time limit, and a test of real processes a second try; deal the
    files out to the workers.

    The closing lines name every test that took its second try. A fault that is not a matter of
    chance fails twice. The long runs have one try.

    Each worker of xdist begins with its part of the list. All parts have about as many tests, those
    of real processes first: they take longest, and what is stolen towards the end is short.
    """
    for item in items:
        if item.get_closest_marker("soak"):
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(SOAK_LIMIT_S))
        elif is_real(item):
            item.add_marker(pytest.mark.flaky(reruns=1))
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    parts: list[list[pytest.Item]] = [
        [] for _ in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    ]
    for tests in sorted(files, key=lambda tests: not is_real(tests[0])):
        min(parts, key=len).extend(tests)
    items[:] = chain.from_iterable(parts)


def is_real(item: pytest.Item) -> bool:
    """Return whether a test is in one of the folders REAL."""
    return bool(REAL & {*item.path.parents})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not tested, as this machine lacks something."""
    missing: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", ()):
        _, is_missing, why = report.longrepr[2].partition(NOT_TESTED)
        if is_missing:
            missing.setdefault(why, []).append(report.fspath)
    for why, files in sorted(missing.items()):
        names = ", ".join(sorted(set(files)))
        terminalreporter.write_line(f"{NOT_TESTED}{len(files)} of {names}: {why}", yellow=True)
