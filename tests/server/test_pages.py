"""The pages in a real browser, from a real server: each role, also without JavaScript."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cases.served import build_served_queue
from examples import series
from machine import find_chromium
from playwright.sync_api import Browser, Page, sync_playwright
from servers import Server, add_tokens, serving
from text_tables import cases

from allocator.queue.queue import Queue
from allocator.server.pages.forms import read_values

EVIL = "<img src=x onerror=alert(1)>'\"&"
HELD = "on-hold-1"  # its explanation is quick
PATHS = (
    *("/", "/jobs", "/jobs?state=all&reason=outranked", "/nodes", "/tenants", "/rounds"),
    *("/reservations", "/rounds/4", "/compare?first=3&second=6", "/what-if"),
)
ROLES = ("viewer", "vision", "speech", "operator")
# page -> status as each of ROLES
RIGHTS = [
    *((path, "200 200 200 200") for path in PATHS),
    *cases("""
/submit -> 403 200 200 200
/jobs/{vision} -> 200 200 404 200
/jobs/{held}?explain=1 -> 200 200 404 200
/jobs/no-such-job -> 404 404 404 404
/rounds/99 -> 404 404 404 404
/nowhere -> 404 404 404 404
"""),
]
# kind of a change, name, value -> the place that is changed
WHAT_IFS = cases("""
gpus l4 0 -> pools.l4.gpus
budget  90 -> budget_per_hour
quota vision 8 -> tenants.vision.max_gpus
spending speech 5 -> tenants.speech.budget_per_hour
share operations 9 -> tenants.operations.weight
weight bert-1 50 -> jobs.bert-1.weight
node a100-0 drain -> nodes.a100-0.state
""")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of a queue with six rounds, and a job whose name is markup."""
    path = tmp_path_factory.mktemp("pages") / "queue.db"
    with build_served_queue(path, now_s=time.time(), rounds=6) as queue:
        queue.submit(job_id=EVIL, tenant="speech", model="bert", total_work=1e6, max_gpus=2)
        queue.submit(job_id=HELD, tenant="vision", model="bert", total_work=1e6, max_gpus=2)
        queue.hold(HELD)
        made = add_tokens(queue)
    with serving(path, made, rate=1000, advice_s=120) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A browser that one role uses; `faults` are errors of the console and strange requests."""

    server: Server
    page: Page
    role: str
    faults: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        """Open a page."""
        self.page.goto(self.server.url + path)
        return self.page

    def send(self, **fields: str) -> str:
        """Fill a form, send it, and return what the next page says."""
        for name, value in fields.items():
            if name == "kind":
                self.page.select_option("#f-kind", value)
            else:
                self.page.fill(f"#f-{name}", value)
        self.page.click("main form button >> nth=-1")
        return self.text()

    def text(self) -> str:
        """Return what a reader sees."""
        return self.page.inner_text("main")

    def expect(self, path: str, status: int) -> None:
        """Open a page that answers with a status; it has no token of anybody in it."""
        answer = self.page.goto(self.server.url + path)
        assert answer is not None and answer.status == status, (path, self.role)
        content = self.page.content()
        assert not any(secret in content for secret in self.server.tokens.values()), path
        if status >= 400:
            assert self.page.locator("main .alert").count() == 1, path
            assert all(str(status) in fault for fault in self.faults)
            self.faults.clear()


@pytest.fixture
def visit(browser: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A visit as the role that the test asks for; nothing strange may happen in it."""
    role, has_script = request.param
    context = browser.new_context(java_script_enabled=has_script)
    context.set_default_timeout(120_000)
    one = Visit(server, context.new_page(), role)
    page = one.page
    page.on("console", lambda m: one.faults.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: one.faults.append(str(error)))
    page.on("dialog", lambda dialog: dialog.accept())
    page.on(
        "request",
        lambda r: None if r.url.startswith(server.url) else one.faults.append(r.url),
    )
    one.go("/jobs?state=all")
    assert page.url.startswith(f"{server.url}/login"), "reading needs a token"
    page.fill("input[name=token]", server.tokens[role])
    page.click("main button")
    assert page.url == f"{server.url}/jobs?state=all"
    yield one
    context.close()
    assert one.faults == []


def as_role(role: str, has_script: bool = True) -> pytest.MarkDecorator:
    """Visit as a role, with JavaScript or without."""
    return pytest.mark.parametrize("visit", [(role, has_script)], indirect=True)


as_each_role = pytest.mark.parametrize(
    "visit",
    series([(role, True) for role in ("speech", "operator", "vision", "viewer")], 1),
    indirect=True,
)


@pytest.fixture(scope="module")
def vision(server: Server) -> str:
    """A job of tenant vision that waits."""
    with Queue(server.queue) as queue:
        return next(
            job.job_id
            for job in queue.jobs(states=["queued"])
            if job.values["tenant"] == "vision" and not job.values["after"]
        )


@as_each_role
def test_every_page_as_each_role(visit: Visit, vision: str) -> None:
    """The status is that of the table; a refusal is a page with a reason. At 360 px nothing sticks
    out. A member reads no name of another tenant's job."""
    is_member = visit.role in ("vision", "speech")
    with Queue(visit.server.queue) as queue:
        others = [job.job_id for job in queue.jobs() if job.values["tenant"] != visit.role]
    visit.page.set_viewport_size({"width": 360, "height": 740})
    for template, statuses in RIGHTS:
        path = template.format(vision=vision, held=HELD)
        visit.expect(path, int(statuses.split()[ROLES.index(visit.role)]))
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360, path
        text = visit.page.content()
        assert not (is_member and [n for n in others if n in text and n not in path]), path
    showback = visit.page.request.get(f"{visit.server.url}/tenants.csv")
    tenants = {line.split(",")[1] for line in showback.text().splitlines()[1:]}
    assert showback.ok and tenants
    assert not is_member or tenants == {visit.role}


@as_each_role
def test_submit_explain_what_if_and_drain_as_each_role(visit: Visit, vision: str) -> None:
    """By clicks: what a role may do works, and what it may not do is not offered."""
    page, role = visit.go("/"), visit.role
    own = f"made-by-{role}"
    assert page.locator("header a", has_text="Submit").count() == (role != "viewer")
    if role != "viewer":
        page.click("header >> text=Submit")
        said = visit.send(job_id=own, total_work="5e5", max_gpus="2")
        assert "The job is submitted." in said
        with Queue(visit.server.queue) as queue:
            tenant = "" if role == "operator" else role
            assert queue.job(own).values["tenant"] == tenant
    page = visit.go(f"/jobs/{own if role == 'speech' else HELD}")
    if role == "speech":
        page.click("button[value=hold]")
        page.wait_for_selector("button[value=release]")
    assert page.locator("button[value=release]").count() == (role != "viewer")
    page.click("text=Check it now")
    assert "Checked just now" in visit.text() and "nobody has released it" in visit.text()
    visit.go("/what-if")
    said = visit.send(kind="weight", name=vision, value="9")
    is_refused = "is not of your tenant" in said
    assert is_refused == (role == "speech")
    assert is_refused or f"With jobs.{vision}.weight = 9" in said
    assert visit.go("/nodes").locator("button[value=drain]").count() == 11 * (role == "operator")
    assert "No GPUs are kept" in visit.go("/reservations").inner_text("main")
    if role == "operator":
        assert "in 6.0 h" in visit.send(reservation="r", gpus="2", at_s="6h", tenant="vision")
        page.click("button[value=cancel]")
        assert "The reservation is over" in visit.text()


def test_what_if_answers_a_change(server: Server) -> None:
    """Each kind of a change has its place. Who gains and who loses is told, in jobs, hours and
    dollars; what cannot be is said."""
    for change, place in WHAT_IFS:
        kind, name, value = change.split(" ")
        assert read_values(kind, name, value, "") == {place: value}
    with server.client("operator") as client:
        for name, value, words in (
            ("vision", "8", ("With tenants.vision.max_gpus = 8", "Who gains", "Jobs that lose")),
            ("nobody", "8", ("tenant &#34;nobody&#34;",)),
        ):
            asked = {"kind": "quota", "name": name, "value": value}
            text = client.get("/what-if", params=asked).text
            assert all(word in text for word in words), words
        asked = {"kind": "gpus", "name": "a100", "value": "24"}
        assert "has the GPUs of its nodes" in client.get("/what-if", params=asked).text


@pytest.mark.nightly
@as_role("operator")
def test_an_operator_steers(visit: Visit) -> None:
    """Submit, change, hold, release, cancel, drain and use again: the queue has it each time."""
    page = visit.go("/submit")
    fields = {"job_id": "made-here", "total_work": "5e5", "max_gpus": "4", "tenant": "vision"}
    said = visit.send(**fields, command="python 'my train.py'")
    assert "The job is submitted." in said and "made-here waits" in said
    with Queue(visit.server.queue) as queue:
        assert queue.job("made-here").command == ("python", "my train.py")
        page.fill("#f-weight", "3.5")
        page.click("button[value=change]")
        assert queue.job("made-here").values["weight"] == 3.5
        for verb, state in (("hold", "held"), ("release", "queued"), ("cancel", "cancelled")):
            page.click(f"button[value={verb}]")
            assert queue.job("made-here").state == state
        visit.go("/nodes").click("summary >> nth=0")
        for label, state in (("Drain h100-1", "drain"), ("Use h100-1 again", "up")):
            page.click(f"button[aria-label='{label}']")
            assert {node["node"]: node["state"] for node in queue.nodes()}["h100-1"] == state
            page.click("summary >> nth=0")
    visit.go("/submit")
    visit.send(**fields | {"total_work": "7"})
    assert "made-here" in page.input_value("#f-job_id") and page.locator(".alert").count() == 1
    assert all("422" in fault or "409" in fault for fault in visit.faults)
    visit.faults.clear()


@pytest.mark.nightly
@as_role("viewer", has_script=False)
def test_a_viewer_reads_everything_without_javascript(visit: Visit) -> None:
    """Every page works, and none has a form that changes something but the one to log out."""
    for path in PATHS:
        page = visit.go(path)
        assert page.locator("h1").count() == 1
        forms = [f.get_attribute("action") for f in page.locator("form[method=post]").all()]
        assert forms == ["/logout"], path
    visit.go("/jobs?state=all&text=onerror")
    assert EVIL in visit.text() and page.locator("main img").count() == 0
    page.click("tbody th a")
    assert EVIL in page.inner_text("h1") and "train.py" not in visit.text()
    page.click("text=Log out")
    assert page.url.endswith("/login")


@pytest.mark.nightly
@as_role("operator")
def test_pages_update_by_themselves_and_by_keyboard(visit: Visit) -> None:
    """A change of the queue appears; the first tab stop leads to the content, all have a name."""
    page = visit.go("/jobs?state=all&text=late-job")
    assert "No job matches" in visit.text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    with Queue(visit.server.queue) as queue:
        queue.submit(job_id="late-job", model="bert", total_work=1e5, max_gpus=1)
    page.wait_for_selector("text=late-job waits", timeout=60_000)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "text"
    for path in ("/", "/nodes", "/submit", "/what-if"):
        visit.go(path)
        nameless = page.evaluate(
            "[...document.querySelectorAll('a, button, input:not([type=hidden]), select')]"
            ".filter(e => !e.closest('[aria-hidden]') && !e.labels?.length"
            " && !e.textContent.trim() && !e.getAttribute('aria-label')).length"
            " + document.querySelectorAll('svg:not([aria-hidden], [aria-label], svg svg)').length"
            " + [...document.querySelectorAll('table:not(:has(caption))')].length"
        )
        assert nameless == 0, path


def test_an_empty_queue_has_pages(tmp_path: Path) -> None:
    """Without pools, jobs and rounds every page says so."""
    with Queue.create(tmp_path / "queue.db") as queue:
        made = add_tokens(queue)
    with serving(tmp_path / "queue.db", made) as server, server.client("operator") as client:
        for path in ("/", "/jobs", "/nodes", "/tenants", "/rounds", "/what-if", "/submit"):
            assert client.get(path).status_code == 200, path
        assert "No controller leads" in client.get("/").text


def test_forms_need_their_session_and_its_mark(server: Server) -> None:
    """A form without the CSRF token of its session, and one of a viewer, change nothing."""
    with server.client() as client, Queue(server.queue) as queue:
        name = queue.jobs(states=["queued"])[0].job_id
        before = queue.job(name).state
        client.post("/login", data={"token": server.tokens["operator"]})
        for fields in ({}, {"csrf": "guessed"}):
            answer = client.post(f"/jobs/{name}", data={"verb": "cancel", **fields})
            assert answer.status_code == 403
        with server.client("viewer") as viewer:
            assert viewer.post(f"/jobs/{name}", data={"verb": "cancel"}).status_code == 403
            assert viewer.post("/nodes", data={"node": "l4", "state": "up"}).status_code == 403
        assert queue.job(name).state == before
        away = client.get("/login?next=https://elsewhere.example/")
        assert 'value="https://elsewhere.example/"' in away.text
        again = client.post(
            "/login",
            data={"token": server.tokens["viewer"], "next": "//elsewhere.example/"},
        )
        assert again.headers["location"] == "/"
        assert server.tokens["viewer"] not in "".join(server.log)
