"""Take the screenshots of the documentation: the pages of `allocator serve` in a real browser.

    python scripts/pictures/draw_server.py                    about a minute of CPU
    python scripts/pictures/draw_server.py --all OUT          every page and size, to look at

Needs the extra "test" (playwright) and chromium. The queue is that of tests/cases/served.py.
"""

import argparse
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "support" / "processes")]

from cases.served import build_served_queue  # noqa: E402
from servers import Server, add_tokens, serving  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
ROUNDS = 60
WAIT_MS = 120_000  # for a page; an explanation takes a while
WIDTHS = {"wide": 1280, "narrow": 390}
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/{job}",
    "explain": "/jobs/{waiting}?explain=1",
    "nodes": "/nodes",
    "tenants": "/tenants",
    "rounds": "/rounds",
    "round": "/rounds/40",
    "compare": "/compare?first=58&second=60",
    "what-if": "/what-if?kind=node&name=a100-0&value=drain",
    "submit": "/submit",
    "missing": "/jobs/no-such-job",
}
KEPT = (  # page, width, colour scheme, height of the picture in pixels
    ("overview", "wide", "light", 1150),
    ("explain", "wide", "dark", 1150),
)


def main() -> None:
    """Serve a queue, and take the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", type=Path, metavar="OUT", help="every page, to look at")
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "queue.db"
        with build_served_queue(path, now_s=time.time(), rounds=ROUNDS) as queue:
            made = add_tokens(queue)
            names = {
                "job": max(queue.jobs(states=["running"]), key=lambda job: job.generation).job_id,
                "waiting": queue.jobs(states=["queued"])[0].job_id,
            }
        with serving(path, made) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            if args.all is not None:
                args.all.mkdir(parents=True, exist_ok=True)
                take_all(server, browser, names, args.all)
            else:
                take_kept(server, browser, names)
            browser.close()


def take(
    server: Server, browser: Browser, path: str, width: str, scheme: str, height: int | None
) -> bytes:
    """Return a screenshot of a page as an operator sees it; no height: the whole page."""
    page = browser.new_page(
        viewport={"width": WIDTHS[width], "height": height or 900},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.set_default_timeout(WAIT_MS)
    try:
        page.goto(f"{server.url}/login?next={path.replace('?', '%3F').replace('&', '%26')}")
        page.fill("input[name=token]", server.tokens["operator"])
        page.click("main button")
        page.wait_for_load_state()
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if overflow > 0:
            print(f"{path} at {width}: {overflow} px wider than the screen", file=sys.stderr)
        return page.screenshot(full_page=height is None)
    finally:
        page.close()


def take_all(server: Server, browser: Browser, names: dict[str, str], out: Path) -> None:
    """Write every page in every size and colour scheme."""
    for name, place in PAGES.items():
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                content = take(server, browser, place.format(**names), width, scheme, None)
                (out / f"{name}-{width}-{scheme}.png").write_bytes(content)


def take_kept(server: Server, browser: Browser, names: dict[str, str]) -> None:
    """Write the pictures of the documentation, with a palette of few colours."""
    for name, width, scheme, height in KEPT:
        content = take(server, browser, PAGES[name].format(**names), width, scheme, height)
        picture = (
            Image.open(io.BytesIO(content)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
        )
        picture.save(PICTURES / f"page-{name}-{width}.png", optimize=True)


if __name__ == "__main__":
    main()
