"""Tokens of the HTTP service: who may read and change the queue over HTTP.

A token is 256 random bits. The queue keeps its SHA-256 only, so nobody who reads the database can
use it. A slow hash would add nothing: it protects short passwords against guessing, and nobody
guesses 256 random bits.

    viewer     reads everything but commands, environments and folders of jobs
    member     reads and changes the jobs of one tenant; of others it sees totals only
    operator   reads and changes everything
"""

import hashlib
import secrets
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection

from allocator.domain.findings import did_you_mean, quote
from allocator.errors import UsageError
from allocator.queue.database.rows import execute, query
from allocator.queue.database.schema import ROLES
from allocator.queue.jobs.verbs import is_storable

PREFIX = "agt_"  # lets scanners for leaked secrets find a token
BYTES = 32


@dataclass(frozen=True)
class Token:
    """A token without its secret. Times are in seconds; None: never."""

    id: int
    name: str
    role: str
    tenant: str
    created_s: float
    expires_s: float | None
    revoked_s: float | None

    def is_valid(self, now_s: float) -> bool:
        """Return whether the token may be used now."""
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)


_READ = f"SELECT {', '.join(field.name for field in fields(Token))} FROM tokens"
_ADD = (
    "INSERT INTO tokens (name, role, tenant, created_s, expires_s, digest)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)


def hash_token(secret: str) -> str:
    """Return the digest under which the queue knows a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def add(
    connection: Connection,
    now_s: float,
    name: str,
    role: str,
    tenant: str = "",
    expires_s: float | None = None,
) -> tuple[Token, str]:
    """Make a token, and return it with its secret, which is kept nowhere.

    Parameters
    ----------
    now_s : float
        Present time in seconds.
    name : str
        Who has it, for the list and the log.
    role : str
        "viewer", "member" or "operator".
    tenant : str
        Tenant of a member.
    expires_s : float, optional
        When it ends, in seconds; None: never.

    Raises
    ------
    UsageError
        For a name, role, tenant or end that is not allowed.
    """
    if role not in ROLES:
        raise UsageError(f"no role {quote(role)}{did_you_mean(role, ROLES)}: {', '.join(ROLES)}")
    if (role == "member") != bool(tenant):
        raise UsageError("a member needs the tenant whose jobs it has; other roles have none")
    for text in (name, tenant):
        if not text.isprintable() or not is_storable(text):
            raise UsageError(f"{quote(text)} has a character that cannot be kept")
    if not name:
        raise UsageError("a token needs a name")
    if expires_s is not None and not expires_s > now_s:
        raise UsageError("the token would have ended already")
    secret = PREFIX + secrets.token_urlsafe(BYTES)
    digest = hash_token(secret)
    execute(connection, _ADD, name, role, tenant, now_s, expires_s, digest)
    token = find(connection, secret, now_s)
    assert token is not None
    return token, secret


def list_tokens(connection: Connection) -> list[Token]:
    """Return all tokens, the oldest first."""
    return [Token(*row) for row in query(connection, f"{_READ} ORDER BY id")]


def find(connection: Connection, secret: str, now_s: float) -> Token | None:
    """Return the valid token that has this secret, or None."""
    return _find_valid(connection, "digest", hash_token(secret), now_s)


def find_by_id(connection: Connection, token_id: int, now_s: float) -> Token | None:
    """Return the valid token of this number, or None."""
    return _find_valid(connection, "id", token_id, now_s)


def find_by_name(connection: Connection, name: str, now_s: float) -> Token | None:
    """Return the newest valid token of this name, or None."""
    return _find_valid(connection, "name", name, now_s)


def revoke(connection: Connection, now_s: float, token_id: int) -> Token:
    """End a token at once, and return it; ending it again changes nothing.

    Raises UsageError if there is no such token.
    """
    execute(
        connection,
        "UPDATE tokens SET revoked_s = COALESCE(revoked_s, ?) WHERE id = ?",
        now_s,
        token_id,
    )
    for row in query(connection, f"{_READ} WHERE id = ?", token_id):
        return Token(*row)
    raise UsageError(f"the queue has no token {token_id}; `allocator queue token list` has all")


def _find_valid(connection: Connection, column: str, value: Any, now_s: float) -> Token | None:
    rows = query(connection, f"{_READ} WHERE {column} = ? ORDER BY id DESC", value)
    tokens = [Token(*row) for row in rows]
    return next((token for token in tokens if token.is_valid(now_s)), None)
