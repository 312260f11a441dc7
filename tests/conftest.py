"""What holds for every test: default signals, a time limit, no wait for the disk, no warning of a
library, in child processes either, and the same random examples in every run.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from places import ROOT

if TYPE_CHECKING:
    from allocator.cli.parsing import Parser

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


@pytest.fixture(autouse=True, scope="session")
def _second_account_of_values() -> Iterator[None]:
    """Hold every value that the audit states against a second account of all objectives."""
    from second_account import compared

    from allocator.audit import check

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "plan_values", compared(check.plan_values))
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_parser() -> Iterator[None]:
    """Build the parser of all commands once, and anew where settings change its defaults."""
    from allocator.cli import configuration, main
    from allocator.errors import AllocatorError

    new = main.parser
    built = cache(new)

    def parser() -> Parser:
        try:
            return new() if configuration.read_settings(built()) else built()
        except AllocatorError:
            return new()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "parser", parser)
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the long runs their own time limit, and a test of real processes a second try.

    The closing lines name every test that took its second try. A fault that is not a matter of
    chance fails twice. The long runs have one try.
    """
    for item in items:
        if REAL & {*item.path.parents} and not item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SOAK_LIMIT_S))
