"""A controller gives every job GPUs of its own, whatever pools allow."""

from __future__ import annotations

from pathlib import Path

from queues import NOW, cluster
from test_service import Rig, submit

from allocator.queue import snapshot as snapshots
from allocator.queue.face import Queue

POOLS = "pool,gpu_type,gpus,memory_gb,sharing\na,A,1,40,any\nb,B,0,40,none\n"
SLOW = "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\nm,m,A,1,1.05,1.05\n"


def test_pools_that_let_jobs_share_are_taken_as_if_they_did_not(tmp_path: Path) -> None:
    """Two short jobs, one GPU, hardly a slowdown: one waits, nothing is given twice, and the log says why, once."""
    rig = Rig(tmp_path)
    with rig.queue.store.write() as connection:
        snapshots.replace_cluster(connection, cluster(**{"pools.csv": POOLS, "sharing.csv": SLOW}), NOW)
    rig.machines.set_gpus("a", 1)
    submit(rig, "one", "two", work=1e4, memory_gb=4.0, max_gpus=1)
    rig.steps(200)
    assert rig.machines.breaches == [] and rig.machines.used["a"] == 1
    assert sorted(j.state for j in rig.queue.jobs()) == ["queued", "running"]
    assert [e["pools"] for e in rig.events("sharing_ignored")] == [["a"]]
    assert rig.queue.snapshot().tables["pools.csv"].columns["sharing"] == ["any", "none"]
    rig.queue.close()


def test_a_guest_of_a_snapshot_is_paused_in_a_queue(tmp_path: Path) -> None:
    """Loaded into a queue, the host runs on and its guest waits: one GPU, one job."""
    jobs = (f"job_id,model,submitted_s,remaining_work,max_gpus,state,pool,gpus,shared_with\n"
            f"host,m,{NOW - 20},50,1,running,a,1,\nguest,m,{NOW - 10},50,1,running,a,1,host\n")
    source = cluster(**{"jobs.csv": jobs, "pools.csv": POOLS, "sharing.csv": SLOW})
    with Queue.create(tmp_path / "queue.db", source, clock=lambda: NOW) as queue:
        assert {j.job_id: j.state for j in queue.jobs()} == {"host": "running", "guest": "paused"}
