"""Programs that a machine may lack. A test without one is skipped, and the closing lines of the run
name it (tests/conftest.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

NOT_TESTED = "NOT TESTED: "
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_program(*names: str) -> str | None:
    """Return the path of the first of these programs that is here."""
    return next((path for name in names if (path := shutil.which(name, path=PATH))), None)


def lack(what: str) -> NoReturn:
    """Skip the test, or all that need a fixture, for want of something."""
    pytest.skip(NOT_TESTED + what)


def find_chromium() -> str:
    """Return the path of a browser."""
    return find_program(*BROWSERS) or lack(
        "a browser needs chromium (as root: apt-get install chromium)"
    )


def need_packages(*names: str) -> None:
    """Skip the test where Python packages of the extra "test" are missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        lack(f"no Python package {', '.join(missing)}")
