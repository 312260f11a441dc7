"""The example job under the local executor and on Slurm: checkpoints, another size, progress, and
the same model in the end.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

import pytest
from example_trainings import list_undisturbed_losses, read_log
from executor_rigs import RIGS, LocalRig

from allocator.loop.executor import NodePart, Order, Phase

STEPS = 120
SLOWLY = ("--rate", "6")  # for what is stopped in the middle: it must not end before that


def command(*more: str) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "allocator.executors.example_job",
        "--steps",
        str(STEPS),
        "--rate",
        "60",
        "--checkpoint-every",
        "0.2",
        *more,
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind", ["local", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("slurm", "ray"))]
)
def test_it_is_shrunk_moved_and_grown_and_learns_the_same(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two GPUs of a node of this machine, a real Slurm or a real Ray, then one, then one of another
    node, then three on both. Each stop writes a checkpoint, each start goes on from it. On this
    machine the second supervisor is killed: steps since the last checkpoint are done again, and no
    others. The work of all adds up, the loss falls below half, and every loss of the log is that of
    the same step of a run that was never disturbed.
    """
    rig = RIGS[kind](tmp_path)
    request.addfinalizer(rig.close)
    assert isinstance(rig, LocalRig)
    executor = rig.current
    shapes = [{"n1": 2}, {"n1": 1}, {"n2": 1}, {"n1": 2, "n2": 1}]
    left = float(STEPS)
    for generation, shape in enumerate(shapes, 1):
        nodes = tuple(NodePart(node, gpus) for node, gpus in shape.items())
        gpus = sum(shape.values())
        run = command(*(SLOWLY if generation < len(shapes) else ()))
        order = Order("j", generation, 1, "a", gpus, "A", left, run, nodes=nodes)
        executor.start(order)
        expected = Phase.FINISHED
        if generation < len(shapes):
            rig.running("j", 8.0)
            expected = Phase.LOST if (kind, generation) == ("local", 2) else Phase.STOPPED
            if expected is Phase.LOST:
                os.kill(rig.read("j", "keeper", generation)["pid"], signal.SIGKILL)
            else:
                executor.stop("j", generation, 1)
        seen = rig.ended("j")
        assert seen.phase is expected
        executor.acknowledge("j", generation)
        left -= seen.work_done
    assert left == 0.0
    rows = read_log(rig.folder / "jobs" / "j" / "work")
    steps = [int(row[2]) for row in rows]
    assert [row[3] for row in rows if row[0] == "start"] == [*"2113"] and steps[-1] == STEPS
    resumed = [(int(a[2]), int(b[2])) for a, b in itertools.pairwise(rows) if b[0] == "start"]
    repeated = [done for done, at in resumed if done != at]
    assert len(repeated) <= (kind == "local") and all(at > 0 for _, at in resumed)
    assert repeated or steps == sorted(steps)
    assert float(rows[-1][4]) < 0.5 * float(rows[0][4])
    curve = list_undisturbed_losses(STEPS)
    assert [float(row[4]) for row in rows] == pytest.approx([curve[n] for n in steps], abs=1e-6)
