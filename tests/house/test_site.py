"""The documentation builds as a site, strictly, and covers every page, command and public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import allocator
from allocator.cli.main import GROUPS


@pytest.mark.nightly
def test_the_site_has_every_page_command_and_name_and_loads_nothing_from_the_network(
    tmp_path: Path,
) -> None:
    """`strict` makes dead links, dead anchors and pages without a link errors."""
    out = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/site/build_site.py"), str(out)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = {path.relative_to(out).as_posix() for path in out.rglob("*.html")}
    for source in (ROOT / "docs").rglob("*.md"):
        name = source.relative_to(ROOT).with_suffix(".html").as_posix()
        assert name.replace("README", "index") in pages
    names = (out / "docs/reference/api.html").read_text(encoding="utf-8")
    headings = set(re.findall(r'id="(?:allocator|formulations)\.[\w.]*?(\w+)"', names))
    public = {name for name in allocator.__all__ if callable(getattr(allocator, name))}
    assert public - headings == set()
    commands = (out / "docs/reference/commands.html").read_text(encoding="utf-8")
    for group in GROUPS.values():
        for command in group:
            assert f"allocator-{command.name}" in commands
    text = "".join((out / page).read_text(encoding="utf-8") for page in pages)
    asked = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(https?://[^"]*)"', text)
    assert asked == []
