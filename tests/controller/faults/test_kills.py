"""Controllers, supervisors and jobs killed with -9 at random, while nodes are drained: nothing
starts from scratch, nothing runs twice, and no GPU is given twice.

A thousand kills of each database: `pytest -s -m soak tests/controller/faults/test_kills.py`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import postgres_server
import pytest
import waiting
from commands import Output
from queues import BACKENDS
from sites import Site

from allocator.executors.supervision.processes import find_descendants
from allocator.io.tables.limited_reader import read_json
from allocator.queue.queue import Queue

UNFINISHED = 14  # jobs, for 12 GPUs
PATIENCE_S = 300.0
# A job and its GPU have a lock while it lives; it counts its steps in a checkpoint, and stamps
# starts and ends.
SCRIPT = (
    "exec 9> {folder}/alive-$ALLOCATOR_JOB 8> {folder}/gpu-$CUDA_VISIBLE_DEVICES; "
    "flock -n 9 && flock -n 8 || echo $ALLOCATOR_JOB >> {folder}/doubled; "
    "n=$(cat checkpoint 2> /dev/null || echo 0); echo start $ALLOCATOR_JOB $n >> {folder}/stamps; "
    "while [ $n -lt STEPS ]; do sleep 0.1 9>&- 8>&-; n=$((n + 1)); echo $n > new; "
    "mv new checkpoint; done; echo end $ALLOCATOR_JOB $n >> {folder}/stamps"
)


class Siege:
    """Two controllers on one queue, jobs that come for ever, and whoever kills them."""

    def __init__(self, site: Site, seed: int, most_steps: int) -> None:
        self.site, self.draw, self.most_steps = site, random.Random(seed), most_steps
        self.stamps: Path = site.folder / "stamps"
        self.stamps.touch()
        with Queue(site.name) as queue:  # one machine pretends to be two
            queue.add_nodes("n1", "n2", pool="a", gpus=4)
        self.controllers = [site.run(), site.run()]
        self.kills: Counter[str] = Counter()
        self.harmed: Counter[str] = Counter()
        self.steps: dict[str, int] = {}

    def submit(self) -> None:
        """As many jobs as ended."""
        ended = len({w[1] for w in self.told() if w[0] == "end"})
        with Queue(self.site.name) as queue:
            while len(self.steps) - ended < UNFINISHED:
                job = f"j{len(self.steps)}"
                self.steps[job] = self.draw.randrange(1, self.most_steps)
                script = SCRIPT.replace("STEPS", str(self.steps[job]))
                command = ["sh", "-c", script.format(folder=self.site.folder)]
                queue.submit(job_id=job, model="m", total_work=1e6, max_gpus=1, command=command)
            failed = [job.job_id for job in queue.jobs() if job.retry_at_s is not None]
            queue.retry(*failed)

    def change_node(self) -> None:
        """One of the nodes is drained, or comes back."""
        with Queue(self.site.name) as queue:
            state = self.draw.choice(("up", "drain"))
            queue.change_nodes(self.draw.choice(("n1", "n2")), state=state)

    def told(self) -> list[list[str]]:
        """The words of each stamp."""
        return [line.split() for line in self.stamps.read_text().splitlines()]

    def kill(self) -> None:
        """One of them, if there is one now."""
        which = self.draw.choices(("controller", "supervisor", "job"), (0.25, 0.6, 0.15))[0]
        if which == "controller":
            k = self.draw.randrange(2)
            assert self.controllers[k].poll() is None, self.controllers[k].communicate()
            self.site.stop(self.controllers[k], signal.SIGKILL)
            self.controllers[k] = self.site.run()
            self.kills[which] += 1
        elif found := sorted(self.site.state.glob("open/*/keeper.json")):
            place = self.draw.choice(found)
            supervisor, order = read_json(place), read_json(place.with_name("order.json"))
            if supervisor is None or order is None:
                return
            pid = int(supervisor["pid"])
            below = find_descendants(pid)
            with suppress(ProcessLookupError):
                if which == "supervisor":
                    os.kill(pid, signal.SIGKILL)
                elif below:
                    os.kill(below[0].pid, signal.SIGKILL)
                else:
                    return
                self.kills[which] += 1
                self.harmed[order["job_id"]] += 1

    def judge(self) -> None:
        """Every job is done, went on where it was, and ran again only where a plan moved it or an
        allocation was hit.
        """
        with Queue(self.site.name) as queue:
            given = {job.job_id: (job.state, job.generation) for job in queue.jobs()}
            with queue.store.read() as connection:
                rows = connection.exec_driver_sql("SELECT job_id, phase FROM allocations")
                phases = Counter((str(job), str(phase)) for job, phase in rows)
        assert set(given) == set(self.steps)
        starts, ends = (Counter(w[1] for w in self.told() if w[0] == x) for x in ("start", "end"))
        for job, (state, generation) in given.items():
            hit = phases[job, "lost"] + phases[job, "failed"]
            moved = phases[job, "stopped"]
            told = job, state, generation, starts[job], ends[job], hit, moved, self.harmed[job]
            assert state == "done" and phases[job, "finished"] == 1, told
            assert hit <= self.harmed[job] and generation == 1 + hit + moved, told
            assert 1 <= ends[job] <= 1 + hit and ends[job] <= starts[job] <= generation, told
            began = [int(w[2]) for w in self.told() if w[:2] == ["start", job]]
            assert began == sorted(began) and began[0] == 0, (told, began)
            final = {int(w[2]) for w in self.told() if w[:2] == ["end", job]}
            assert final == {self.steps[job]}, (told, final)


@pytest.mark.parametrize(
    ("backend", "kills", "most_steps"),
    [
        pytest.param("sqlite", 4, 12, marks=pytest.mark.nightly),
        *(pytest.param(name, 1000, 80, marks=pytest.mark.soak) for name in BACKENDS),
    ],
)
def test_kills_lose_and_double_nothing(
    tmp_path: Path, capsys: Output, backend: str, kills: int, most_steps: int
) -> None:
    """The jobs themselves say what ran: never two of one at once, nor on one GPU, and in the end
    all are done.
    """
    url = postgres_server.new_database() if backend == "postgresql" else ""
    site = Site(tmp_path, capsys, url)
    siege = Siege(site, 22, most_steps)
    try:
        while siege.kills.total() < kills:
            siege.submit()
            siege.kill()
            if siege.draw.random() < 0.05:
                siege.change_node()
            time.sleep(siege.draw.uniform(0.0, 0.6))
            assert not (tmp_path / "doubled").exists(), siege.kills
        with Queue(site.name) as queue:
            queue.change_nodes("n1", "n2", state="up")
        waiting.wait_for(lambda: _all_done(siege), PATIENCE_S, 1.0)
        siege.judge()
        assert [one.poll() for one in siege.controllers] == [None, None]
    finally:
        site.close()
        if url:
            postgres_server.drop(url)


def _all_done(siege: Siege) -> bool:
    with Queue(siege.site.name) as queue:
        queue.retry(*[job.job_id for job in queue.jobs() if job.retry_at_s is not None])
        return all(job.state == "done" for job in queue.jobs())
