"""Nodes of a queue: the verbs, the snapshot, and starts that have to fit on nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Output, call
from examples import series
from queues import BACKENDS, NOW, Story, cluster, fresh

from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import InvalidInput, UsageError
from allocator.queue import snapshot as snapshots
from allocator.queue.queue import Queue

JOB = {"model": "m", "total_work": 100, "max_gpus": 4}
TOPOLOGY = f'now_s = {NOW}\ninterval_s = 60\n[topology]\nlevels = ["rack", "block"]\n'
NODES = (
    "node,pool,gpus,state,rack,block,cpus,host_memory_gb\nn1,a,4,,r1,b1,16,\nn2,a,4,up,r2,b1,,256\n"
)


@pytest.fixture
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    """Pool a on two nodes of four GPUs, pool b without nodes; jobs j and k wait."""
    files = {"nodes.csv": NODES, "config.toml": TOPOLOGY}
    with fresh(getattr(request, "param", "sqlite"), tmp_path, cluster(**files)) as made:
        made.submit_many([{"job_id": "j", **JOB}, {"job_id": "k", **JOB}])
        yield made


@pytest.mark.parametrize(
    ("names", "values", "words"),
    [
        (["x"], {"pool": "c", "gpus": 4}, 'no pool "c"'),
        (["x"], {"pool": "a", "gpus": 4, "state": "away"}, 'state "away"'),
        (["x"], {"pool": "a", "gpus": 4, "labels": {"row": "1"}}, 'no level "row"'),
        (["x\0"], {"pool": "a", "gpus": 4}, "control"),
        (["n1"], {"pool": "a", "gpus": 5}, "there already"),
        (
            ["x"],
            {"pool": "a", "gpus": 5, "leaves_s": 2, "returns_s": 2},
            "returns_s 2 is not after",
        ),
    ],
)
def test_what_is_no_node(
    queue: Queue, names: list[str], values: dict[str, object], words: str
) -> None:
    """Every fault of the user is said in words, and nothing is changed."""
    before = queue.nodes()
    with pytest.raises(UsageError, match=words):
        queue.add_nodes(*names, **values)
    with pytest.raises(UsageError, match='no node "n9"'):
        queue.change_nodes("n1", "n9", state="drain")
    with pytest.raises(UsageError, match='no node "n9"'):
        queue.remove_nodes("n1", "n9")
    with pytest.raises(UsageError, match="has the GPUs of its nodes"):
        queue.set_gpus({"a": 4})
    assert queue.nodes() == before


def test_a_start_waits_for_its_nodes(queue: Queue) -> None:
    """A job that holds a node keeps another one from it until its end is recorded, though the pool
    has GPUs; the snapshot says where jobs are. No job starts where no round has named its nodes."""
    story = Story(queue)
    story.play("""
        want j=a/4@n1:4
        starts -> j.1
        say j running
        want j=a/4@n1:4 k=a/4@n1:2,n2:2
        stops ->
        starts ->
        nodes -> 4:j 0:
    """)
    placed = queue.snapshot().tables["placements.csv"]
    rows = [list(placed.texts(name)) for name in ("job_id", "node", "gpus")]
    assert rows == [["j"], ["n1"], ["4"]]
    story.play("""
        say j finished
        starts -> k.1
        nodes -> 2:k 2:k
        want k=a/4
        stops -> k.1
        say k stopped
        starts ->
    """)


@pytest.mark.parametrize("queue", BACKENDS, indirect=True)
def test_shares_of_a_gpu_and_cpus_are_counted(queue: Queue) -> None:
    """Two halves are one GPU, a third half is another; CPUs of a node may be what is short."""
    half = {"model": "m", "total_work": 9, "max_gpus": 1, "gpu_fraction": 0.5}
    queue.submit_many([{"job_id": name, **half} for name in "pqr"])
    queue.submit(job_id="c", model="m", total_work=9, max_gpus=2, cpus_per_gpu=9)
    Story(queue).play("""
        want p=a/1@n1:0.5#0 q=a/1@n1:0.5#0 r=a/1@n1:0.5#0
        starts -> p.1 q.1
        nodes -> 1:p+q 0:
        used -> 1 0
        want p=a/1@n1:0.5#0 q=a/1@n1:0.5#0 r=a/1@n1:0.5#0 j=a/3@n1:3 k=a/1@n1:1
        starts -> j.1 p.1 q.1
        say p finished
        say q finished
        say j finished
        want c=a/2@n1:2
        starts ->
        want c=a/2@n2:2
        starts -> c.1
    """)


def test_a_node_with_jobs_is_not_removed(queue: Queue) -> None:
    """Neither by name nor by a cluster without it; a drained node gives no start."""
    story = Story(queue)
    story.play("want j=a/4@n1:4\nstarts\nsay j running")
    with pytest.raises(UsageError, match='jobs hold 4 GPUs of node "n1": drain it first'):
        queue.remove_nodes("n1")
    other = cluster(**{"nodes.csv": NODES.replace("n1,", "n7,"), "config.toml": TOPOLOGY})
    with pytest.raises(InvalidInput, match="n1"), queue.store.write() as connection:
        snapshots.replace_cluster(connection, other, NOW)
    queue.change_nodes("n2", state="drain")
    story.play("want j=a/4@n1:4 k=a/4@n2:4\nstarts ->")
    queue.change_nodes("n2", state="up")
    story.play("starts -> k.1")


@pytest.mark.parametrize("backend", series(BACKENDS, 1))
def test_commands(backend: str, tmp_path: Path, capsys: Output) -> None:
    """The verbs of the command line, in the order of a day. A pool has the GPUs of its up nodes."""
    with fresh(backend, tmp_path, cluster(**{"config.toml": TOPOLOGY})) as queue:
        name = queue.store.engine.url.render_as_string(hide_password=False)

    def told(*words: str) -> tuple[int, str, str]:
        return call(capsys, "queue", "node", words[0], name, *words[1:])

    assert "no nodes: plans count GPUs by pool" in told("list")[1]
    code, out, _ = told(
        "add", "n1", "n2", "--pool", "a", "--gpus", "4", "--label", "rack=r1", "--cpus", "64"
    )
    assert (code, out) == (0, "n1: added\nn2: added\n")
    assert told("drain", "n1")[1] == "n1: drain\n"
    assert told("drain", "n1")[1:] == ("", "nothing was changed\n")
    assert "n2: leaves 20" in told("drain", "n2", "--at", "1h", "--until", "2h")[1]
    assert ", back 20" in told("list")[1] and ", back 20" in call(capsys, "status", name)[1]
    with Queue(name) as queue:
        now, leaves = queue.clock(), validate(queue.snapshot()).nodes
    assert leaves.leaves_s[1] == pytest.approx(now + 3600, abs=99)
    assert leaves.returns_s[1] == pytest.approx(now + 7200, abs=99)
    assert told("drain", "n2", "--until", "2h")[0] == 2
    told("drain", "n2", "--at", "1s", "--until", "2h")
    with Queue(name) as queue:
        away = validate(queue.snapshot())
    assert away.nodes.state[1] == 1 and not any("up nodes" in text for text in away.warnings)
    assert told("up", "n2")[1] == "n2: up\n" and "back" not in told("list")[1]
    assert told("set", "n2", "--gpus", "8", "--label", "rack=")[1] == "n2: changed\n"
    code, out, _ = told("list", "--format", "json")
    assert [(n["node"], n["gpus"], n["state"], n["labels"]) for n in json.loads(out)["nodes"]] == [
        ("n1", 4, "drain", {"rack": "r1"}),
        ("n2", 8, "up", {}),
    ]
    assert "rack=r1" in told("list")[1]
    with Queue(name) as queue:
        assert queue.pools()["a"] == 8
        found = validate(queue.snapshot())
    assert found.nodes.node == ("n1", "n2") and found.levels[0].label == ("r1", "")
    assert found.nodes.cpus.tolist() == [64, 64]
    assert told("list", "--pool", "b", "--format", "csv")[1].count("\n") == 1
    assert told("down", "n1")[0] == told("up", "n1")[0] == told("remove", "n1")[0] == 0
    assert told("remove", "n1")[0] == 2 and told("set", "n2", "--label", "x")[0] == 2
    assert call(capsys, "queue", "node")[0] == 2
    with Queue(name) as queue:
        assert queue.pools()["a"] == 8
