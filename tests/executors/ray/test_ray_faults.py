"""The executor of Ray on a real Ray that fails, and among users that do as they like.

Whatever happens, an allocation runs once, its end is known, and what is said of it is true.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from executor_rigs import PATIENCE_S, SAY, RayRig, shell
from waiting import wait_for

from allocator.clusters.ray import api
from allocator.clusters.ray.api import RayApi, RayUnreachable
from allocator.executors.ray.executor import PACKAGES, RayExecutor
from allocator.loop.executor import NodePart, NotNow, Order, Phase

RUN = (
    'echo "start $CUDA_VISIBLE_DEVICES" >> $STAMPS; '
    f"set 2; {SAY} trap 'echo stop >> $STAMPS; exit 143' TERM; "
)
ENDLESS = f"{RUN} while :; do sleep 0.05; done"
WORKERS = """
import os, time, ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as On
from allocator.executors.ray.workers import get_group

@ray.remote(num_cpus=0)
def work():
    return os.environ["CUDA_VISIBLE_DEVICES"]

group = get_group()
sizes = [int(part.rpartition(":")[2]) for part in os.environ["ALLOCATOR_NODES"].split("|")]
found = ray.get([
    work.options(num_gpus=n, scheduling_strategy=On(group, i)).remote() for i, n in enumerate(sizes)
])
with open(os.environ["STAMPS"], "a") as out:
    out.write(f"workers {os.environ['ALLOCATOR_GPUS']} {' '.join(found)}\\n")
"""


class FaultRig(RayRig):
    """Jobs stamp what they were given, in pool "s"."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stamps = folder / "stamps"

    def executor(self, patience_s: float = 60.0) -> RayExecutor:
        limits = {"lease_s": 3.0, "patience_s": patience_s}
        return RayExecutor(self.folder, 5.0, self.ray.address, **limits)

    def ordered(self, job: str, *nodes: NodePart) -> Order:
        gpus = sum(part.gpus for part in nodes) or 1
        order = replace(shell(job, 1, ENDLESS, gpus=gpus), pool="s", nodes=nodes)
        return replace(order, environment={"STAMPS": str(self.stamps)})


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FaultRig]:
    """An empty state; its jobs are stopped in the end."""
    with closing(FaultRig(tmp_path)) as made:
        yield made


@pytest.mark.nightly
def test_no_answer_and_lost_answers(rig: FaultRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray takes a job and its answer is lost; then the dashboard halts: nothing is concluded, the
    stop is obeyed even so. The job started once.
    """
    executor, submit = rig.executor(), RayApi.submit

    def submit_and_fail(self: RayApi, request: dict[str, object]) -> None:
        submit(self, request)
        raise RayUnreachable("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(RayApi, "submit", submit_and_fail)
        with pytest.raises(NotNow, match="the answer was lost"):
            executor.start(rig.ordered("j", NodePart("s1", 2)))
    rig.executor().start(rig.ordered("j", NodePart("s1", 2)))
    rig.running("j", 2.0)
    with rig.ray.unreachable(), monkeypatch.context() as patch:
        patch.setattr(api, "TIMEOUT_S", 1.0)
        for one in (executor, rig.executor()):
            with pytest.raises(NotNow, match="Ray at"):
                one.observe()
        executor.stop("j", 1, 1)
        wait_for(lambda: rig.read_stamps()[-1] == ["stop"], PATIENCE_S, 0.1)
    assert rig.ended("j").phase is Phase.STOPPED
    assert rig.read_stamps() == [["start", "0,1"], ["stop"]]


@pytest.mark.nightly
def test_several_nodes_and_own_workers(rig: FaultRig) -> None:
    """A placement group has the GPUs of two nodes, just as the order says; what can never be is
    said to have failed.
    """
    executor = rig.current
    order = rig.ordered("m", NodePart("s2", 1), NodePart("s3", 3))
    environment = {**order.environment, "PYTHONPATH": str(PACKAGES)}
    command = (sys.executable, "-c", WORKERS)
    executor.start(replace(order, command=command, environment=environment))
    assert rig.ended("m").phase is Phase.FINISHED
    [[word, gpus, *indices]] = rig.read_stamps()
    assert (word, gpus, [len(text.split(",")) for text in indices]) == ("workers", "4", [1, 3])
    impossible = {
        "many": replace(rig.ordered("many"), gpus=99),
        "share": rig.ordered("share", NodePart("s1", 1, 0, 0.5)),
        "typo": replace(rig.ordered("typo"), environment={"ALLOCATOR_RAY": '{"gpus": 3}'}),
    }
    for one in impossible.values():
        executor.start(one)
    said = {one.job_id: one for one in executor.observe() if one.job_id != "m"}
    assert {one.phase for one in said.values()} == {Phase.FAILED}
    assert "has no 99 GPUs" in said["many"].detail
    assert "shares of a GPU" in said["share"].detail
    assert 'no "gpus"' in said["typo"].detail
