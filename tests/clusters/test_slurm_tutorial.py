"""docs/slurm.md up to Run, followed on a real Slurm: its commands, its settings, its blocks."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from commands import call
from places import ROOT
from slurm_cluster import SlurmCluster

from allocator.clusters.slurm.settings import read_plugin

PAGE = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8").partition("\n## Run\n")[0]
COMMANDS = [line.strip() for line in re.findall(r"^    (?:allocator|sbatch) .*$", PAGE, re.M)]
COMMANDS = [line for line in COMMANDS if "cluster.db" not in line]  # of Run, to undo it
TRAIN = "#!/bin/sh\ntrap 'exit 143' TERM\nsleep 600 & wait\n"
RATES = """\
model,gpu_type,gpus,work_per_s
bert,a100,1,1
bert,a100,8,6
bert,v100,1,1
bert,v100,8,6
"""


def block(language: str, part: str) -> str:
    """The code block of the page in that language with that text in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return next(text for text in blocks if part in text)


def test_the_tutorial_can_be_followed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command of the page does what it says, in the order of the page."""
    with SlurmCluster(lua=read_plugin()) as slurm:
        work = slurm.folder / "work"
        command = work / "bin" / "allocator"
        command.parent.mkdir()
        command.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m allocator "$@"\n'
        )
        command.chmod(0o755)
        (work / "train.sh").write_text(TRAIN)
        (work / "train.sbatch").write_text(TRAIN.replace("\n", "\n#SBATCH --gres=gpu:2\n", 1))
        (work / "rates.csv").write_text(RATES)
        history = (ROOT / "data" / "examples" / "traces" / "history.txt").read_text()
        (work / "history.txt").write_text(history.replace("1-02:00:00", "02:00:00"))
        (work / "slurm.toml").write_text(block("toml", "unlimited_s"))
        monkeypatch.chdir(work)
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, slurm.environment[name])

        def follow(text: str) -> str:
            """Run a text in a shell."""
            path = f"PATH={command.parent}:{slurm.environment['PATH']}"
            done = slurm.call("env", path, "bash", "-euc", text)
            assert done.returncode == 0, (text, done.stderr)
            return done.stdout

        def follow_here(line: str) -> None:
            """Run commands of the allocator in this process."""
            for part in line.split(" && "):
                words, _, file = part.partition(" > ")
                code, out, err = call(capsys, *shlex.split(words, comments=True)[1:])
                assert code == 0, (part, err)
                if file:
                    Path(file).write_text(out, encoding="utf-8")

        submitting = [line for line in COMMANDS if "train.sh" in line]
        assert len(submitting) == 2
        jobs = [re.findall(r"\d+$", follow(line).strip())[0] for line in submitting]
        said = [json.loads(slurm.run("squeue", "-h", "-j", job, "-o", "%k")) for job in jobs]
        assert said[0] == said[1]
        follow(block("bash", "squeue --json"))
        for line in COMMANDS:
            if line not in submitting:
                job = jobs[0]
                follow_here(line.replace(" JOB", f" {job}").replace("jobs.17.", f"jobs.{job}."))
        assert (work / "look" / "jobs.csv").exists() and (work / "job_submit.lua").exists()
        follow("ALLOCATOR_WAIT_S=30 bash slurm.sh")
        assert [slurm.states()[job] for job in jobs] == ["RUNNING"] * 2
