"""Log in with a token, and out again; style sheet, script and icon; refusals as pages."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from allocator.queue.tokens import Token
from allocator.server.access import COOKIE, Form, Reader, Served, Service, find_user, verify
from allocator.server.errors import Refusal
from allocator.server.pages.rendering import read_static, render_page

router = APIRouter()
STATIC = {
    "allocator.css": "text/css; charset=utf-8",
    "allocator.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
HEADINGS = {
    401: "Who are you?",
    403: "Not allowed",
    404: "Not found",
    409: "Not possible now",
    429: "Too many requests",
    503: "Busy",
    504: "Too slow",
}


@router.get("/login")
async def show_login(request: Request, served: Served, next: str = "/") -> Response:
    """Ask for a token, unless a proxy says who it is."""
    user = await find_user(request)
    if user is not None:
        return _start_session(served, user, next)
    return render_page(request, None, "login.html", next=next)


@router.post("/login")
async def log_in(request: Request, served: Served, form: Form) -> Response:
    """Start a session for a token."""
    token = await verify(request, form.get("token", ""))
    return _start_session(served, token, form.get("next", "/"))


def _start_session(served: Service, token: Token, path: str) -> Response:
    """Give the browser the cookie of a new session, and lead it to a page."""
    session = served.sessions.start(token.id)
    answer = RedirectResponse(local_path(path), 303)
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


@router.get("/static/{name}")
async def send_static(name: str) -> Response:
    """Send a file that all pages use; its address changes with its content."""
    if name not in STATIC:
        raise Refusal(404, "not_found", "there is no such file")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(read_static(name), media_type=STATIC[name], headers=headers)


def local_path(path: str) -> str:
    """Return a path of this service; "/" for anything that leads elsewhere."""
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_local and path.isprintable() else "/"


def render_refusal(request: Request, refusal: Refusal) -> Response:
    """Show a refusal as a page; without a token, the form that asks for one."""
    if refusal.code == "no_token" and request.method == "GET":
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/login?next={quote(request.url.path + query)}", 303)
    heading = HEADINGS.get(refusal.status_code, "That did not work")
    caller = request.scope.get("caller")
    answer = render_page(
        request, caller, "refusal.html", refusal.status_code, refusal=refusal, heading=heading
    )
    answer.headers.update(refusal.headers or {})
    return answer
