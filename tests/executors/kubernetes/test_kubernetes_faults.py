"""A fault at every request of the life of a job, of a round of the admission check, and in the
middle of a plan: it is tried again or reported, and never believed. The server is a fake.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from executor_rigs import KubernetesRig
from fakes.kubernetes_server import FakeServer
from kubernetes_objects import kueue_cluster

from allocator.clusters.adapter import ClusterUnreachable, PlannedJob, Refused
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import Reader
from allocator.executors.kubernetes.executor import KubernetesExecutor
from allocator.loop.executor import ENDED, NotNow, Observation, Phase

POOL = "nvidia-a100-sxm4-80gb"
FAULTS = ("500 before", "500 after", "429 before", "nonsense after", "403", "404", "409", "410")
LOOKS = 40  # enough for a job that starts, runs and stops, with a fault


def look(executor: KubernetesExecutor) -> list[Observation]:
    """What the executor observes; nothing if the cluster did not answer."""
    try:
        return list(executor.observe())
    except NotNow:
        return []


def live(rig: KubernetesRig) -> Observation:
    """A job from start to end: it is started and stopped once, and nothing of it is left."""
    executor = rig.current
    executor.start(rig.order("j"))
    ended: list[Observation] = []
    for n in range(LOOKS):
        seen = look(executor)
        assert len(rig.server.all("Job")) <= 1
        if n == 5:
            executor = rig.executor()  # another controller, which has the folder only
            executor.stop("j", 1, 1)
        rig.pass_time()
        ended = [one for one in seen if one.phase in ENDED]
        if ended:
            executor.acknowledge("j", 1)
            break
    for _ in range(6):
        look(executor)
        rig.pass_time()
    assert (rig.server.all("Job"), rig.server.all("Pod")) == ([], [])
    assert rig.server.breaches == []
    (end,) = ended
    return end


def sweep(folder: Path, faults: Sequence[str], every: int) -> int:
    """One fault at every n-th request of a job, of any verb, and how many requests there were."""
    number, is_done = 0, False
    while not is_done:
        place = folder / str(number)
        place.mkdir(parents=True)
        rig = KubernetesRig(place)
        rig.server.faults_at = {number: faults[number % len(faults)]}
        end = live(rig)
        assert (end.phase, end.work_done) == (Phase.STOPPED, 3.0), (number, end)
        is_done = rig.server.sent <= number
        number += every
    return number


@pytest.mark.parametrize(
    ("faults", "every"),
    [
        (FAULTS, 3),
        pytest.param(FAULTS, 1, marks=pytest.mark.nightly),
        *(pytest.param([fault], 1, marks=pytest.mark.soak) for fault in FAULTS),
    ],
)
def test_a_fault_at_every_request_of_a_job(
    tmp_path: Path, faults: Sequence[str], every: int
) -> None:
    """The job runs once and is stopped, whatever the fault is; the faults take turns at every third
    request, or at each; in the soak each of them comes at all requests."""
    assert sweep(tmp_path, faults, every) > 20


@cache
def recorded_cluster() -> tuple[Any, ...]:
    """Objects with Kueue, made once."""
    return tuple(kueue_cluster())


def checked_server() -> FakeServer:
    """Kueue waits for the check of one workload, and runs another one that has it."""
    server = FakeServer(recorded_cluster())
    running = server.one("Workload", "job-running")
    running["status"]["admissionChecks"] = [
        {
            "name": "gpus",
            "state": "Ready",
            "message": "",
            "lastTransitionTime": "2026-11-01T08:00:00Z",
        }
    ]
    return server


def answer(server: FakeServer) -> list[str]:
    """One round of the check, in which one job starts and one is paused."""
    states = {
        name: one["state"]
        for name in ("job-running", "job-checked")
        for one in server.one("Workload", name)["status"]["admissionChecks"]
    }
    plan = []
    if states["job-running"] == "Ready":
        plan.append(PlannedJob("ml/running", "pause", None, 0, {}, POOL, 4))
    if states["job-checked"] == "Pending":
        plan.append(PlannedJob("ml/checked", "start", POOL, 4, {"n1": 4}))
    return answer_checks(Reader(server), lambda view: plan, 1.8e9)


def states_of(server: FakeServer) -> str:
    """What the server has in the end."""
    kinds = ("Workload", "AdmissionCheck")
    return json.dumps([one.get("status") for kind in kinds for one in server.all(kind)])


def disturb(faults: Sequence[str]) -> int:
    """One fault at each request of a round of the check in turn, and how many requests there were.

    The round fails or says what was not taken; the next rounds make what it left undone, so that
    all is as if nothing had happened.
    """
    undisturbed = checked_server()
    answer(undisturbed)
    for number in range(undisturbed.sent):
        server, fault = checked_server(), faults[number % len(faults)]
        server.faults_at = {number: fault}
        try:
            lines = answer(server)
        except (ClusterUnreachable, Refused):
            lines = ["failed"]
        is_repaired = fault == "410"  # the list was read again
        is_missing = fault == "404"  # a kind that the cluster need not know
        words = ("failed", "not taken", "not there", "not active")
        said = any(word in one for one in lines for word in words)
        assert said or is_repaired or is_missing, (number, fault, lines)
        for _ in range(2):
            answer(server)
        assert states_of(server) == states_of(undisturbed), (number, fault)
    return undisturbed.sent


@pytest.mark.parametrize(
    "faults", [FAULTS, *(pytest.param([fault], marks=pytest.mark.soak) for fault in FAULTS)]
)
def test_a_fault_at_every_request_of_a_round_of_the_check(faults: Sequence[str]) -> None:
    """The faults take turns; in the soak each of them comes at all requests."""
    assert disturb(faults) > 10
