"""Build the documentation as a site that loads nothing from the network.

    python scripts/site/build_site.py OUT      # write the site into the folder OUT
    python scripts/site/build_site.py --serve  # look at it at http://127.0.0.1:8000

The pages are those of the repository, at their own paths, so that every link works in both. The
navigation is the list of docs/README.md, with its sections and their parts. The reference of the
Python names is their docstrings. A dead link, a dead anchor or a page without a link is an error.
"""

import argparse
import logging
import re
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.commands import build as mkdocs_build, serve as mkdocs_serve
from mkdocs.config import load_config

import allocator

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "formulations")
API = "docs/reference/api.md"
# pages that docs/README.md does not list: they stand at the ends of the navigation
FIRST = {"Start": "README.md", "Documentation": "docs/README.md"}
LAST = {"Contributing": "CONTRIBUTING.md", "Changes": "CHANGELOG.md"}


def main() -> int:
    """Build the site, or serve it while the pages are written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, help="folder for the site")
    parser.add_argument("--serve", action="store_true", help="serve it on this machine")
    args = parser.parse_args()
    if (args.out is None) != args.serve:
        parser.error("name a folder, or --serve")
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        copy_pages(pages)
        settings: dict[str, Any] = {"docs_dir": str(pages), "nav": navigation(pages)}
        config_file = str(Path(__file__).with_name("mkdocs.yml"))
        if args.serve:
            mkdocs_serve.serve(config_file, **settings)
        else:
            logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
            config = load_config(config_file, site_dir=str(args.out.resolve()), **settings)
            mkdocs_build.build(config)
            print(f"{args.out}: {len(list(args.out.rglob('*.html')))} pages")
    return 0


def copy_pages(pages: Path) -> None:
    """Copy what the site shows, and write the page that comes from the code."""
    for name in SOURCES:
        source, target = ROOT / name, pages / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    (pages / API).write_text(api_page(), encoding="utf-8")


def api_page() -> str:
    """Return the page of the public names, one section each, from their docstrings."""
    lines = ["# Python API", "", "Every public name of `allocator`, from its docstring.", ""]
    for name in sorted(allocator.__all__, key=str.lower):
        value = getattr(allocator, name)
        if isinstance(value, str | types.ModuleType):
            continue
        lines += [f"::: {value.__module__}.{value.__qualname__}", ""]
    return "\n".join(lines)


def navigation(pages: Path) -> list[dict[str, Any]]:
    """Return the navigation: a tab for each section of docs/README.md, with its parts and pages."""
    out: list[dict[str, Any]] = [{title: page} for title, page in FIRST.items()]
    index = (pages / "docs" / "README.md").read_text(encoding="utf-8")
    seen = {*FIRST.values(), *LAST.values()}
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0].strip()
        before, *parts = re.split(r"^### ", section, flags=re.MULTILINE)
        entries = _entries(before, seen)
        entries += [{part.splitlines()[0].strip(): _entries(part, seen)} for part in parts]
        if title == "Look up":
            entries += [{"Python API": API}]
        if entries:
            out.append({title: entries})
    return [*out, *({title: page} for title, page in LAST.items())]


def _entries(text: str, seen: set[str]) -> list[dict[str, Any]]:
    """Return the pages of a part of the index that are not seen yet, and mark them as seen."""
    entries: list[dict[str, Any]] = []
    for label, page in _links(text):
        if page not in seen:
            seen.add(page)
            entries.append({label: page})
    return entries


def _links(text: str) -> Iterator[tuple[str, str]]:
    """Yield the label and the page, from the root of the repository, of every link to a page."""
    for label, target in re.findall(r"\[([^\]]+)\]\(([^)#\s]+\.md)[^)]*\)", text):
        path = (ROOT / "docs" / target).resolve()
        yield label, path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main())
