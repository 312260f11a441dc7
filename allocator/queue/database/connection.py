"""Open a queue and run transactions on it.

A path names an SQLite file, and a URL names a PostgreSQL database. This module checks the version
of the schema, and turns errors of the database into errors of the queue.

Both databases have one writer at a time: SQLite locks its file, and on PostgreSQL every writing
transaction begins with one advisory lock. So nothing changes while a transaction first reads and
then writes, there are no deadlocks, and no transaction has to be repeated. Each transaction takes
milliseconds. Commits reach the disk before they return (synchronous=FULL).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from allocator.errors import Fault, InvalidInput, UsageError, install_command
from allocator.objects import Json
from allocator.queue.cluster_tables import get_meta, put_meta
from allocator.queue.database import identity
from allocator.queue.database.schema import SCHEMA, SCHEMA_KEY, metadata
from allocator.queue.errors import QueueUnavailable

WAIT_S = 30.0  # seconds that a transaction waits for another writer
CACHE_KIB = 16_384  # of pages of an SQLite queue in each connection
READER_CACHE_KIB = 2048  # the same of one that only reads, of which a service has several
CONNECTIONS = 4  # that are kept open; more are closed after their transaction
WRITERS = 7_305_862_291  # key of the advisory lock, for all queues of a PostgreSQL database
SYNCHRONOUS = "FULL"  # SQLite: a commit is on the disk when it returns
INIT = 'make one with "allocator queue init"'


@dataclass(frozen=True)
class QueueDatabase:
    """An open queue.

    `name` is what messages call it, without a password. `file` is device and inode of an SQLite
    queue.
    """

    engine: Engine
    name: str
    wait_s: float
    file: tuple[int, int] | None = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the queue and writes nothing."""
        self._check_file()
        with translate_errors(self), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that may write; it is the only one at that time.

        Its changes are on disk when it ends without an error, and none is kept otherwise. Raises
        QueueUnavailable.
        """
        self._check_file()
        with (
            translate_errors(self),
            self.engine.connect().execution_options(queue_write=True) as connection,
            connection.begin(),
        ):
            yield connection

    def _check_file(self) -> None:
        """Raise QueueUnavailable if the file of the queue is not the one that was opened.

        Connections would otherwise go on with a file that has no name any more, and all that they
        write would be lost.
        """
        if self.file is not None and _file_identity(Path(self.name)) != self.file:
            raise QueueUnavailable(
                f"{self.name}: the file was deleted or replaced; open the queue again"
            )

    def close(self) -> None:
        """Close all connections."""
        with suppress(Exception):
            self.engine.dispose()


def open_queue(
    queue: str | os.PathLike[str], *, wait_s: float = WAIT_S, reads_only: bool = False
) -> QueueDatabase:
    """Open an existing queue that has the schema of this program.

    Parameters
    ----------
    queue : str or path
        Path (SQLite) or URL (postgresql://...).
    wait_s : float
        Seconds that a transaction waits for a locked database.
    reads_only : bool
        The database itself refuses writes, and the files of an SQLite queue do not change at all.

    Raises
    ------
    InvalidInput
        If there is no queue, it is not a queue, or it has another schema.
    UsageError
        For a malformed URL.
    QueueUnavailable
        If it cannot be reached.
    """
    store = _connect_database(queue, wait_s, reads_only)
    try:
        path = _path(store)
        if path is not None and not path.exists():
            raise _translate_fault(store, f"there is no such queue; {INIT}")
        with store.read() as connection:
            if not _has_tables(connection, store):
                raise _translate_fault(
                    store, f"is no queue; {INIT}" if path is not None else f"has no queue; {INIT}"
                )
        return replace(store, file=None if path is None else _file_identity(path))
    except BaseException:
        store.close()
        raise


def create_queue(
    queue: str | os.PathLike[str], *, wait_s: float = WAIT_S
) -> tuple[QueueDatabase, bool]:
    """Make a queue, or open the one that exists.

    A new SQLite file can be read and written by its owner only. Raises the errors of `open_queue`.

    Parameters
    ----------
    queue : str or path
        Path (SQLite) or URL (postgresql://...).
    wait_s : float
        Seconds that a transaction waits for a locked database.

    Returns
    -------
    tuple of (QueueDatabase, bool)
        The open queue, and whether it was made by this call.
    """
    store = _connect_database(queue, wait_s)
    path = _path(store)
    is_created = path is not None and _create_private_file(path, store)
    try:
        if path is not None:
            _enable_wal(store)
        with store.write() as connection:
            is_new = not _has_tables(connection, store)
            if is_new:
                metadata.create_all(connection, checkfirst=False)
                put_meta(connection, SCHEMA_KEY, SCHEMA)
                identity.make_id(connection)
        return replace(store, file=None if path is None else _file_identity(path)), is_new
    except BaseException:
        store.close()
        if is_created and path is not None and path.exists() and path.stat().st_size == 0:
            path.unlink(missing_ok=True)
        raise


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file, or None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _has_tables(connection: Connection, store: QueueDatabase) -> bool:
    """Return whether the database has the tables of a queue, False if it has no tables at all.

    Raises InvalidInput if they are those of something else, or have another schema.
    """
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return False
    if not {"meta", "jobs"} <= set(tables):
        raise _translate_fault(
            store, "is a database of something else; a queue needs one of its own"
        )
    schema = get_meta(connection, SCHEMA_KEY)
    if schema is None:
        raise _translate_fault(
            store,
            "was made before the first release, whose tables are others: make a new queue with"
            ' "allocator queue init NEW --from FOLDER", where FOLDER is what "allocator queue'
            ' export" of the version that made this one writes',
        )
    if schema != SCHEMA:
        raise _translate_fault(
            store,
            f"has schema {schema}, this program needs {SCHEMA}: use the version that made it",
        )
    return True


def _connect_database(
    queue: str | os.PathLike[str], wait_s: float, reads_only: bool = False
) -> QueueDatabase:
    text = os.fspath(queue)
    if not text:
        raise UsageError("the name of the queue is empty")
    try:
        url = _parse_url(text)
        is_file = _sqlite_path(url)
        file_args = {"timeout": wait_s, "check_same_thread": False}
        more: Json = {}
        if reads_only and is_file:
            more["creator"] = partial(_connect_read_only, str(url.database), wait_s)
        engine = sa.create_engine(
            url,
            hide_parameters=True,
            pool_size=CONNECTIONS,
            # its pages stay cached until another connection writes
            pool_use_lifo=True,
            pool_pre_ping=not is_file,
            connect_args=file_args if is_file else {"connect_timeout": 10},
            **more,
        )
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise UsageError(
            f'"{_without_password(text)}" is no path and no database URL that works here; '
            "write a path for"
            " SQLite, or postgresql://USER@HOST/DATABASE"
        ) from None
    except ModuleNotFoundError as error:
        raise UsageError(
            f"PostgreSQL needs the package {error.name}: {install_command('psycopg')}"
        ) from None
    _install_listeners(engine, url, wait_s, reads_only)
    shown = {name: value for name, value in url.query.items() if name in ("host", "port")}
    server = url.set(drivername="postgresql", query=shown)
    name = url.database or "" if is_file else server.render_as_string()
    return QueueDatabase(engine, name, wait_s)


def _parse_url(text: str) -> URL:
    if "://" not in text:
        return URL.create("sqlite", database=os.path.abspath(text))
    url = make_url(text)
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if _sqlite_path(url) and not url.database:
        raise UsageError("an SQLite queue needs the path of a file")
    if not _sqlite_path(url) and url.drivername != "postgresql+psycopg":
        raise ValueError(url.drivername)
    return url


def _sqlite_path(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _connect_read_only(path: str, wait_s: float) -> sqlite3.Connection:
    """Return a connection that writes nothing.

    The last connection that closes moves what a killed process left in the log (-wal) into the
    file, unless it opened the file in mode "ro". So the mode is "ro" where there is a log. Where
    there is none, that mode would leave an empty log behind, and the mode is "rw".
    """
    mode = "ro" if os.path.exists(f"{path}-wal") else "rw"
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode={mode}", uri=True, timeout=wait_s, check_same_thread=False
    )
    connection.execute("PRAGMA query_only=ON")
    return connection


def _without_password(text: str) -> str:
    """Return a URL without its user, password and query."""
    scheme, slashes, rest = text.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2].partition('?')[0]}"


def _path(store: QueueDatabase) -> Path | None:
    """Return the file of an SQLite queue, or None."""
    return Path(store.engine.url.database or "") if _sqlite_path(store.engine.url) else None


def _create_private_file(path: Path, store: QueueDatabase) -> bool:
    """Make the file readable by its owner only, before SQLite makes it readable by everybody.

    SQLite gives its -wal and -shm files the mode of the file. Returns False if the file exists.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return True
    except FileExistsError:
        return False
    except OSError as error:
        raise _translate_fault(store, f"cannot be made: {error.strerror}") from None


def _enable_wal(store: QueueDatabase) -> None:
    """Switch the file to write-ahead logging, so that readers do not wait for a writer."""
    with translate_errors(store), store.engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.execute("PRAGMA journal_mode=WAL")


def _install_listeners(engine: Engine, url: URL, wait_s: float, reads_only: bool) -> None:
    sqlite = _sqlite_path(url)
    settings = (
        (
            f"PRAGMA synchronous={SYNCHRONOUS}",
            "PRAGMA foreign_keys=ON",
            f"PRAGMA busy_timeout={int(wait_s * 1000)}",
            "PRAGMA journal_size_limit=67108864",
            f"PRAGMA cache_size=-{READER_CACHE_KIB if reads_only else CACHE_KIB}",
        )
        if sqlite
        else (
            f"SET lock_timeout = {int(wait_s * 1000)}",
            "SET idle_in_transaction_session_timeout = 60000",
            "SET synchronous_commit = on",
            "SET timezone = 'UTC'",
            *(("SET default_transaction_read_only = on",) if reads_only else ()),
        )
    )

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        if sqlite:
            # the listener below begins transactions, not the driver
            connection.isolation_level = None
        cursor = connection.cursor()
        for setting in settings:
            cursor.execute(setting)
        cursor.close()
        if not sqlite:
            connection.commit()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("queue_write", False)
        if sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        elif writes:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS})")
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


@contextmanager
def translate_errors(store: QueueDatabase) -> Iterator[None]:
    """Turn errors of the database into errors of the queue that a user can read."""
    driver: Any = store.engine.dialect.loaded_dbapi
    try:
        yield
    except (DBAPIError, driver.Error) as error:  # rows.py uses the driver without SQLAlchemy
        cause = getattr(error, "orig", error)
        message = " ".join((str(cause).strip().splitlines() or [""])[0].split())
        for needle, words in DAMAGE:
            if needle in message:
                raise _translate_fault(store, words) from error
        for needle, words in TROUBLE:
            if needle in message:
                raise QueueUnavailable(
                    f"{store.name}: {words.format(wait_s=store.wait_s)}"
                ) from error
        if getattr(error, "connection_invalidated", False) or isinstance(
            cause, (driver.OperationalError, driver.InterfaceError)
        ):
            raise QueueUnavailable(f"{store.name}: {message}") from error
        raise


def _translate_fault(store: QueueDatabase, message: str) -> InvalidInput:
    return InvalidInput([Fault(store.name, None, message)])


DAMAGE = (
    ("file is not a database", "is a file, but no queue"),
    ("malformed", "is damaged: its pages contradict each other; restore a copy"),
)
TROUBLE = (
    (
        "database is locked",
        "is locked by another process for more than {wait_s:g} s; nothing was changed",
    ),
    (
        "lock timeout",
        "is locked by another process for more than {wait_s:g} s; nothing was changed",
    ),
    ("read-only transaction", "was opened for reading only; nothing was changed"),
    (
        "readonly database",
        "cannot be written: the file or its folder is read-only; nothing was changed",
    ),
    (
        "unable to open database file",
        "cannot be opened: it is a folder, there is no permission, or its folder is gone",
    ),
    ("is full", "cannot be written: the disk is full; nothing was changed"),
    ("disk I/O error", "cannot be written or read: the disk is full or fails; nothing was changed"),
)
