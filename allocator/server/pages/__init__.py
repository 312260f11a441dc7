"""The pages for people: HTML that works without JavaScript.

`router` has the routes of the pages. A page says who may see it as a handler of the API does
(allocator/server/access.py), and forms have the field `csrf` with `caller.session.csrf`.
"""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from allocator.queue.jobs import verbs
from allocator.server.access import COOKIE, Form, Reader, Served, verify
from allocator.server.errors import Refusal

router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_overview(caller: Reader, served: Served) -> HTMLResponse:
    """Show how many jobs there are."""
    numbers = await served.queue.look(verbs.counts)
    rows = "".join(f"<li>{n} {escape(state)}</li>" for state, n in numbers.items())
    return _page("Overview", f"<p>{escape(caller.name)} ({caller.role})</p><ul>{rows}</ul>")


@router.get("/login")
async def show_login(next: str = "/") -> HTMLResponse:
    """Ask for a token."""
    return _page(
        "Log in",
        f'<form method="post" action="/login"><input type="hidden" name="next"'
        f' value="{escape(next)}"><label>Token <input type="password" name="token"'
        f' autocomplete="off" required></label> <button>Log in</button></form>',
    )


@router.post("/login")
async def log_in(request: Request, served: Served, form: Form) -> Response:
    """Start a session for a token."""
    token = await verify(request, form.get("token", ""))
    session = served.sessions.start(token.id)
    answer = RedirectResponse(local_path(form.get("next", "/")), 303)
    answer.set_cookie(
        COOKIE,
        session.key,
        max_age=int(served.options.session_s),
        httponly=True,
        samesite="strict",
        secure=served.options.tls,
    )
    return answer


@router.post("/logout")
async def log_out(caller: Reader, served: Served) -> Response:
    """End the session."""
    if caller.session is not None:
        served.sessions.end(caller.session.key)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def local_path(path: str) -> str:
    """Return a path of this service; "/" for anything that leads elsewhere."""
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_local and path.isprintable() else "/"


def render_refusal(request: Request, refusal: Refusal) -> Response:
    """Show a refusal as a page; without a token, the form that asks for one."""
    if refusal.code == "no_token" and request.method == "GET":
        return RedirectResponse(f"/login?next={quote(request.url.path)}", 303)
    answer = _page(f"{refusal.status}", f"<p>{escape(refusal.message)}</p>")
    answer.status_code = refusal.status
    answer.headers.update(refusal.headers or {})
    return answer


def _page(title: str, body: str) -> HTMLResponse:
    return HTMLResponse(
        f'<!doctype html><html lang="en"><title>{escape(title)}</title><h1>{escape(title)}</h1>'
        f"{body}"
    )
