"""The fixture itself: a real Slurm starts, runs jobs on GPUs, survives kills, leaves nothing."""

from __future__ import annotations

import signal

from slurm_cluster import SlurmCluster


def test_a_real_slurm_runs_jobs_and_leaves_nothing() -> None:
    """Jobs of two accounts get GPUs of their own; slurmctld stops and comes back; all ends."""
    with SlurmCluster() as slurm:
        first = slurm.submit("--gres=gpu:3", "--output=devices", wrap="env; sleep 600")
        second = slurm.submit("--gres=gpu:8", "--partition=v100", user="nobody")
        for job, gpus in ((first, 3), (second, 8)):
            slurm.wait_for_state(job, "RUNNING")
            assert slurm.gpus(job) == gpus
        slurm.kill("slurmctld", signal.SIGTERM)
        assert slurm.call("env", f"SLURM_CONF={slurm.hasty_conf()}", "squeue", "-h").returncode
        slurm.start_controller()
        assert slurm.states() == {first: "RUNNING", second: "RUNNING"}
        assert "CUDA_VISIBLE_DEVICES=0,1,2" in (slurm.folder / "work" / "devices").read_text()
    assert slurm.steps() == [] and not slurm.folder.exists()
