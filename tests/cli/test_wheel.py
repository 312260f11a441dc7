"""The wheel, installed into an environment of its own, works outside the repository.

The libraries that it needs are those of this environment: nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import httpx
import pytest
from places import ROOT
from waiting import PATIENCE_S

# of the documentation, which names data as it lies in the repository
DOCUMENTED = """
allocator demo
allocator simulate data/workloads/demo --policy greedy --until 3000 --out results
allocator report results
allocator rent data/rental/classes.csv --pools data/rental/pools.csv --budget 50
""".strip().splitlines()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment that has the wheel, and libraries from here."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel, _ = build(ROOT, folder)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    options = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    call = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)]
    subprocess.run(call, check=True, capture_output=True, timeout=120)
    # Python reads no .pth file of these folders, so an editable installation stays out of sight
    (here,) = (folder / "venv").glob("lib/python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (here / "libraries.pth").write_text("\n".join([*libraries, *site.getsitepackages()]))
    return python.parent


def build(source: Path, folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution into a folder."""
    call = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(call, cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


def call(
    programs: Path, folder: Path, line: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Call a command of the environment in a folder, as a user would."""
    words = shlex.split(line)
    done = subprocess.run(
        [programs / words[0], *words[1:]],
        cwd=folder,
        env=environment(programs),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, f"{line}\n{done.stdout[-500:]}{done.stderr[-800:]}"
    return done


def environment(programs: Path) -> dict[str, str]:
    """The variables of a shell that has activated the environment."""
    return {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}


@pytest.mark.nightly
def test_two_builds_are_equal(installed: Path, tmp_path: Path) -> None:
    """The source distribution alone makes the same wheel and itself, byte by byte. The wheel holds
    the two packages and their licence, and nothing of the tests.
    """
    first = installed.parents[1]
    (wheel,), (archive,) = first.glob("*.whl"), first.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    again = build(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in (wheel, archive)]
    names = zipfile.ZipFile(wheel).namelist()
    about = f"{archive.name.removesuffix('.tar.gz')}.dist-info"
    assert {name.split("/")[0] for name in names} == {"allocator", "formulations", about}
    assert f"{about}/licenses/LICENSE" in names
    doubles = {path.name for path in (ROOT / "tests" / "fakes").glob("*.py")}
    assert doubles and doubles.isdisjoint(name.split("/")[-1] for name in names)


@pytest.mark.nightly
def test_documented_commands_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """Each works, or says which command brings the data that it names, and works with that."""
    for documented in DOCUMENTED:
        line = documented
        while "data/" in line:
            said = call(installed, tmp_path, line, code=3).stderr
            found = re.search(r'(data/\S+): .*"(allocator examples .*)" brings it, as "(.*)"', said)
            assert found is not None, said
            path, command, copy = found.groups()
            if not (tmp_path / copy).exists():
                call(installed, tmp_path, command)
            line = line.replace(path, copy)
        call(installed, tmp_path, line)


@pytest.mark.nightly
def test_serve_an_example(installed: Path, tmp_path: Path) -> None:
    """The queue of an example: a token logs in, and the API and the pages answer."""
    for line in (
        "allocator examples team --out .",
        "allocator queue init cluster.db --from team",
        "allocator queue import-csv cluster.db team/more-jobs.csv",
    ):
        call(installed, tmp_path, line)
    token = call(installed, tmp_path, "allocator queue token add cluster.db ann --role operator")
    service = subprocess.Popen(
        [installed / "allocator", "serve", "cluster.db", "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        env=environment(installed),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stderr is not None
        url = next(json.loads(line)["url"] for line in service.stderr if '"serving"' in line)
        headers = {"Authorization": f"Bearer {token.stdout.split()[-1]}"}
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
            assert client.get("/api/v1/counts").json()["counts"]["queued"] == 6
            for page in ("/", "/tenants", "/nodes", "/rounds", "/login", "/jobs/bert-1"):
                assert client.get(page).status_code == 200, page
    finally:
        service.terminate()
        service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 0
