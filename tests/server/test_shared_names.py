"""Who may read the names of the jobs on whose GPUs another job runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import NOW, cluster
from servers import Server, add_tokens, serving

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.queue.queue import Queue

FILES = {
    "pools.csv": "pool,gpu_type,gpus,memory_gb,sharing\na,A,4,40,any\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,1\nn,A,4,1\n",
    "sharing.csv": "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\nm,n,A,1,1.2,1.2\n",
    "tenants.csv": "tenant\nspeech\nvision\n",
    "config.toml": f"now_s = {NOW}\ninterval_s = 60\nmax_primaries = 3\n",
}
API = """jobs
jobs/speech-all
jobs/speech-all/explanation
plan
rounds
rounds/2
rounds/1/compare/2
pools
nodes
tenants
spend""".splitlines()
PAGES = ("", "jobs", "jobs/speech-all", "rounds", "rounds/2", "nodes", "tenants")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Job "speech-all" runs on the GPUs of a job of its tenant, of one of tenant vision, and on two
    idle ones."""
    path, clock = tmp_path_factory.mktemp("shared") / "queue.db", SimulatedClock(NOW)
    with Queue.create(path, cluster(**FILES), clock=clock.now) as queue:
        machines = SimulatedMachines({"a": 4}, clock, MachineBehaviour(rate=lambda order: 1.0))
        options = ControllerOptions(every_s=60.0, poll_s=10.0, policy="ffs")
        controller = Controller(queue.store, SimulatedExecutor(machines), clock, options)
        common = {"total_work": 1e6, "memory_gb": 4}
        for name in ("speech-two", "vision-one"):
            tenant = name.partition("-")[0]
            queue.submit(job_id=name, tenant=tenant, model="m", max_gpus=1, **common)
        _run(controller, clock)
        queue.submit(
            job_id="speech-all", tenant="speech", model="n", min_gpus=4, max_gpus=4, **common
        )
        _run(controller, clock)
        made = add_tokens(queue)
    with serving(path, made) as server:
        yield server


def _run(controller: Controller, clock: SimulatedClock) -> None:
    """Let a minute pass, in which a round is decided and carried out."""
    for _ in range(6):
        controller.step()
        clock.sleep(10.0)


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("speech", "speech-two|another tenant's job"),
        ("viewer", "speech-two|vision-one"),
        ("operator", "speech-two|vision-one"),
    ],
)
def test_a_member_is_told_the_names_of_its_own_jobs_only(
    server: Server, who: str, told: str
) -> None:
    """Of two primary jobs a member reads the one of its tenant; the other one has no name."""
    with server.client(who) as client:
        listed = {job["job_id"]: job for job in client.get("/api/v1/jobs").json()["jobs"]}
        alone = client.get("/api/v1/jobs/speech-all").json()
        assert alone["shared_with"] == listed["speech-all"]["shared_with"] == told
        assert listed["speech-two"]["shared_with"] is None


@pytest.mark.nightly
def test_no_answer_to_a_member_has_the_other_name(server: Server) -> None:
    """Neither the API nor a page names the job of tenant vision to tenant speech."""
    with server.client("speech") as client:
        for path in (*(f"/api/v1/{name}" for name in API), *(f"/{name}" for name in PAGES)):
            answer = client.get(path)
            assert answer.status_code in (200, 409), path
            assert "vision-one" not in answer.text, path
        asked = {"values": {"jobs.speech-all.weight": 2}}
        answer = client.post("/api/v1/what-if", json=asked)
        assert answer.status_code == 200 and "vision-one" not in answer.text
