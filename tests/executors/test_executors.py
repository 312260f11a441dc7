"""What every executor promises, whatever is behind it: real processes, files and an actor, a
simulation.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from examples import series
from executor_rigs import (
    RIGS,
    SAY,
    SHARING,
    WORK,
    FilesRig,
    KubernetesRig,
    LocalRig,
    Rig,
    SimulatedRig,
)
from places import ROOT
from queues import cluster
from servers import serve_metrics

from allocator.cli.main import run
from allocator.clusters.adapter import Capabilities
from allocator.errors import UsageError
from allocator.executors import registry
from allocator.executors.files import FilesExecutor
from allocator.executors.kubernetes.executor import KubernetesExecutor
from allocator.executors.ledger import Ledger
from allocator.executors.local import LocalExecutor
from allocator.executors.ray.executor import RayExecutor
from allocator.executors.slurm.executor import SlurmExecutor
from allocator.executors.supervision.supervisor import build_environment
from allocator.io.progress_sources import LOG, METRIC, URL
from allocator.loop.executor import (
    ColocatedAllocation,
    NodePart,
    NotNow,
    Order,
    Phase,
    SettingsWriter,
    StaleOrder,
)
from allocator.queue.queue import Queue


@pytest.fixture(params=series([*RIGS], 4))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Each kind in turn, Slurm and Ray nightly; whatever still runs in the end is stopped."""
    with closing(RIGS[request.param](tmp_path)) as made:
        yield made


@pytest.mark.parametrize("rig", series([*RIGS], len(RIGS) - 1), indirect=True)
def test_a_job_starts_once_and_its_end_is_observed_until_acknowledged(rig: Rig) -> None:
    """The same order three times, once from a new object: one allocation runs, with 3 of its work
    safe, and what it reports besides is observed. It cannot be acknowledged: it would be forgotten
    and its GPUs given to another. Told to stop (twice) it is stopped, which is said again and again
    until acknowledged (twice), then never; the same orders, late, are refused: whoever gives them
    has forgotten what it was told. Its next allocation counts from zero.
    """
    executor = rig.current
    order = rig.order("j")
    executor.start(order)
    rig.begin(order)
    rig.executor().start(order)
    assert rig.running("j", 3.0).reported["loss"] == 2.5
    with pytest.raises(UsageError, match="has not ended"):
        executor.acknowledge("j", 1)
    assert [(o.job_id, o.generation, o.phase) for o in executor.observe()] == [
        ("j", 1, Phase.RUNNING)
    ]
    executor.stop("j", 1, 1)
    executor.stop("j", 1, 1)
    first = rig.ended("j")
    assert first.phase is Phase.STOPPED and first.work_done >= 3.0
    assert rig.ended("j") == first
    executor.acknowledge("j", 1)
    executor.acknowledge("j", 1)
    with pytest.raises(StaleOrder):
        executor.start(order)
    with pytest.raises(StaleOrder):
        executor.stop("j", 1, 1)
    for _ in range(5):
        rig.pass_time()
        assert executor.observe() == []
    executor.start(rig.order("j", 2, gpus=2))
    seen = rig.running("j")
    assert (seen.generation, seen.work_done) in ((2, 0.0), (2, 3.0))


def test_what_ends_by_itself_is_finished(rig: Rig) -> None:
    """The end is known to a new object too, and is said no more after its acknowledgement."""
    rig.executor().start(rig.order("j", kind="short"))
    executor = rig.current
    assert rig.ended("j").phase is Phase.FINISHED
    assert [o.phase for o in rig.executor().observe()] == [Phase.FINISHED]
    executor.stop("j", 1, 1)  # too late, and no reason to say anything else
    assert rig.ended("j").phase is Phase.FINISHED
    executor.acknowledge("j", 1)
    assert rig.executor().observe() == []


def test_old_orders_are_refused(rig: Rig) -> None:
    """An executor that has seen fencing token 2 refuses starts and stops with token 1, and still
    obeys token 2; so does a new executor object on the same state. Once allocation 5 of a job was
    ordered, starts and stops of its allocation 4 are refused, while 5 runs and after it has ended.
    """
    rig.executor().start(rig.order("j", 5, token=2))
    executor = rig.current
    with pytest.raises(StaleOrder):
        executor.start(rig.order("k", token=1))
    with pytest.raises(StaleOrder):
        executor.stop("j", 5, 1)
    assert rig.running("j").phase is Phase.RUNNING
    for _ in range(2):
        with pytest.raises(StaleOrder):
            executor.start(rig.order("j", 4, token=2))
        with pytest.raises(StaleOrder):
            executor.stop("j", 4, 2)
        if executor.observe():
            assert rig.end("j", 5, 2).phase is Phase.STOPPED


def test_a_stop_that_comes_first_wins(rig: Rig) -> None:
    """A controller that crashed between writing an order down and giving it may stop it: it is
    observed as stopped without any work, and the late order does not start it."""
    executor = rig.current
    executor.stop("j", 1, 1)
    seen = rig.outcome(rig.order("j"))
    assert (seen.phase, seen.work_done) == (Phase.STOPPED, 0.0)
    executor.acknowledge("j", 1)
    with pytest.raises(StaleOrder):
        executor.start(rig.order("j"))
    rig.pass_time()
    assert executor.observe() == []


def place_next_to(order: Order, job: str, generation: int, needed: bool = True) -> Order:
    """The order on the GPUs of another allocation."""
    return replace(order, beside=(ColocatedAllocation(job, generation, needed),))


@pytest.mark.parametrize("rig", series(SHARING, 3), indirect=True)
def test_a_secondary_waits_for_its_primary(rig: Rig) -> None:
    """Ordered before its primary job, or next to an allocation that has ended: not now, and nothing
    is remembered. Then it runs, once, and the end of one is not that of the other."""
    executor = rig.current
    secondary_order = place_next_to(rig.order("g"), "h", 1)
    with pytest.raises(NotNow):
        executor.start(secondary_order)
    executor.start(rig.order("h"))
    executor.start(secondary_order)
    rig.executor().start(secondary_order)
    rig.running("h")
    rig.running("g")
    assert rig.end("h").phase is Phase.STOPPED
    assert rig.running("g").generation == 1
    assert rig.end("g").phase is Phase.STOPPED
    with pytest.raises(NotNow):
        executor.start(place_next_to(rig.order("g", 2), "h", 1))


@pytest.mark.parametrize("rig", series(SHARING, 3), indirect=True)
def test_a_primary_comes_to_its_secondary_or_goes_where_it_can(rig: Rig) -> None:
    """Next to a job that runs; again, once its first allocation, whose GPUs that job goes on using,
    is forgotten; and next to one that is gone, which it does not need."""
    executor = rig.current
    rig.begin(rig.order("g"))
    rig.begin(place_next_to(rig.order("h"), "g", 1, needed=False))
    rig.end("g")
    assert rig.begin(place_next_to(rig.order("g", 2), "h", 1, needed=False)).generation == 2
    rig.end("g", 2)
    rig.begin(place_next_to(rig.order("x"), "g", 2, needed=False))
    assert {o.job_id for o in executor.observe()} == {"h", "x"}


@pytest.mark.parametrize("rig", ["local", "files", "simulated"], indirect=True)
def test_a_job_runs_on_the_gpus_of_several_jobs_and_idle_ones(rig: Rig) -> None:
    """Four GPUs; h and i have one each, g runs on both and on the two others. It waits for i. When
    h and i have ended, g still has all four; when g has ended too, another job has them."""
    executor, is_local = rig.current, type(rig) is LocalRig
    assert executor.capabilities.shares_with_several
    both = (ColocatedAllocation("h", 1), ColocatedAllocation("i", 1))
    order = rig.order("g", gpus=4, beside=both)
    executor.start(rig.order("h"))
    with pytest.raises(NotNow, match='GPUs of job "i"'):
        executor.start(order)
    executor.start(rig.order("i"))
    executor.start(order)
    rig.executor().start(order)
    if isinstance(rig, LocalRig):
        told = [[one["job_id"], one["generation"]] for one in rig.read("g", "order")["beside"]]
        assert told == [["h", 1], ["i", 1]] and rig.read("h", "order")["beside"] == []
    if is_local:  # files leave it to their actor, the simulated machines note a breach
        assert [rig.read(job, "order")["devices"] for job in "hig"] == [[0], [1], [0, 1, 2, 3]]
        with pytest.raises(NotNow, match="have two jobs"):
            executor.start(place_next_to(rig.order("y"), "h", 1))
    for name in ("h", "i"):
        rig.running(name)
        rig.end(name)
    if is_local:
        with pytest.raises(NotNow, match="0 GPUs are free"):
            executor.start(rig.order("x"))
    rig.running("g")
    rig.end("g")
    rig.begin(rig.order("x", gpus=4))
    rig.end("x")
    assert not isinstance(rig, SimulatedRig) or rig.cluster.breaches == []


@pytest.mark.parametrize("rig", ["local", "files", "simulated"], indirect=True)
def test_orders_run_on_the_nodes_that_they_name(rig: Rig) -> None:
    """Whole GPUs of two nodes, and two halves of one GPU: the order and the job's environment say
    which, and nobody gives a GPU twice."""
    executor = rig.current
    half = NodePart("n1", 1, 0, 0.5)
    orders = {
        "two": (NodePart("n1", 1), NodePart("n2", 1)),
        "p": (half,),
        "q": (half,),
        "one": (NodePart("n2", 1),),
    }
    for name, nodes in orders.items():
        gpus = sum(part.gpus for part in nodes)
        order = rig.order(name, gpus=gpus, nodes=nodes)
        executor.start(order)
        rig.executor().start(order)
    for name in orders:
        rig.running(name)
    if isinstance(rig, SimulatedRig):
        assert (rig.cluster.breaches, rig.cluster.used["a"]) == ([], 4)
        executor.start(rig.order("r", nodes=(half,)))
        executor.start(rig.order("s", nodes=(NodePart("n2", 1),)))
        executor.start(rig.order("one", 2))
        breaches = " ".join(rig.cluster.breaches)
        for words in ('node "n1"', 'node "n2"', 'pool "a"', "while its allocation 1 lives"):
            assert words in breaches
        return
    assert isinstance(rig, LocalRig)
    told = {name: rig.read(name, "order") for name in orders}
    for name, nodes in orders.items():
        assert [NodePart(**part) for part in told[name]["nodes"]] == list(nodes)
    if isinstance(rig, FilesRig):
        return
    devices = {name: one["devices"] for name, one in told.items()}
    assert devices == {"two": [0, 2], "p": [1], "q": [1], "one": [3]}
    for job, *expected in (("two", "0,2", "n1:1|n2:1"), ("p", "1", "n1:0.5@0")):
        environment = build_environment(rig.folder, told[job])[0]
        names = ("CUDA_VISIBLE_DEVICES", "ALLOCATOR_NODES")
        assert [environment[name] for name in names] == expected
    for nodes, words in (
        ((half,), "1 of GPU 0 of node"),
        ((NodePart("n2", 1),), '0 GPUs are free on node "n2", not 1'),
        ((NodePart("n9", 1),), '0 GPUs are free on node "n9"'),
    ):
        with pytest.raises(NotNow, match=words):
            executor.start(rig.order("r", nodes=nodes))
    rig.end("p")
    rig.begin(rig.order("r", nodes=(half,)))


@pytest.mark.parametrize("rig", ["local", "files", "simulated"], indirect=True)
def test_a_running_job_reads_new_settings(rig: Rig) -> None:
    """The settings of its start stand until others are written, as often as they are written; an
    old token is refused, and one that has ended is told nothing."""
    executor = rig.current
    assert isinstance(executor, SettingsWriter)
    order = rig.order(
        "j",
        environment={"ALLOCATOR_ACCUMULATION": "1", "MINE": "x"},
    )
    if isinstance(rig, LocalRig):
        wait_for_2 = f"{SAY} until grep -q '\"2\"' $ALLOCATOR_SETTINGS; do sleep 0.02; done"
        order = replace(order, command=("sh", "-c", f"set {WORK}; {wait_for_2}"))
    rig.begin(order)

    def said() -> dict[str, str] | None:
        if isinstance(rig, SimulatedRig):
            return rig.cluster.settings.get(("j", 1))
        assert isinstance(rig, LocalRig)
        return rig.read("j", "settings") or None

    assert said() == {"ALLOCATOR_ACCUMULATION": "1"}
    with pytest.raises(StaleOrder):
        executor.write_settings("j", 1, {}, 0)
    told = {"ALLOCATOR_ACCUMULATION": "2"}
    for _ in range(2):
        executor.write_settings("j", 1, told, 1)
        assert said() == told
    if isinstance(rig, LocalRig):
        assert rig.ended("j").phase is Phase.FINISHED
    rig.end("j")
    executor.write_settings("j", 1, told, 1)
    assert said() is None


def test_documented_capabilities_are_declared() -> None:
    """The table of docs/local.md says what each executor can do."""
    text = (ROOT / "docs" / "local.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 6]
    for kind in (LocalExecutor, FilesExecutor, KubernetesExecutor, SlurmExecutor, RayExecutor):
        [cells] = [row[3:6] for row in rows if row[1].strip() == f"`{kind.name}`"]
        can = kind.capabilities
        assert [cell.strip().startswith("yes") for cell in cells] == [
            can.reports_progress,
            can.pins_nodes,
            can.resizes_in_place,
        ]


@pytest.mark.parametrize("rig", series(["local", "kubernetes", "slurm", "ray"], 2), indirect=True)
def test_progress_from_what_a_job_prints_or_measures(rig: Rig) -> None:
    """A pattern finds the step, and how much of it a checkpoint holds; only that is done. The last
    line counts though the job ends at once. A metric is asked for at its address."""
    order = rig.order(
        "j",
        environment={LOG: r"^step (?P<step>\d+) saved (?P<safe>\d+)$"},
        command=(
            "sh",
            "-c",
            "trap 'echo step 9 saved 4; exit 143' TERM; echo step 5 saved 3; sleep 600 & wait",
        ),
    )
    with serve_metrics("good") as url:
        other = replace(order, job_id="k", environment={URL: url, METRIC: "steps"})
        if isinstance(rig, KubernetesRig):
            rig.server.main_log = "step 5 saved 3\n"
            rig.server.metrics[f"{urlsplit(url).port}/metrics"] = "steps 7\n"
        rig.current.start(order)
        rig.current.start(other)
        assert rig.running("j", 1.0).work_done == 3.0
        assert rig.running("k", 1.0).work_done == 7.0
    if isinstance(rig, KubernetesRig):
        rig.server.main_log += "step 9 saved 4\n"
        for pod in rig.server.all("Pod"):
            rig.server.finish(pod, 7, message="")
    else:
        rig.current.stop("j", 1, 1)
    assert rig.ended("j").work_done == 4.0
    if isinstance(rig, LocalRig):  # the next allocation counts from there
        rig.current.acknowledge("j", 1)
        again = ("sh", "-c", "echo step 12 saved 9; exit 3")
        assert rig.outcome(replace(order, generation=2, command=again)).work_done == 5.0


def test_a_queue_with_nodes_needs_an_executor_that_pins_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`allocator run` refuses another one before it orders anything; without nodes it serves."""

    class Careless(FilesExecutor):
        capabilities = Capabilities()

    monkeypatch.setattr(registry.REGISTRY, "_added", {})
    registry.register_executor("careless", lambda site: Careless(site.folder))
    words = ["--once", "--executor", "careless", "--state", str(tmp_path / "state")]
    for name, nodes in (("with", "node,pool,gpus\nn1,a,4\nn2,a,4\n"), ("without", "")):
        queue = str(tmp_path / f"{name}.db")
        Queue.create(queue, cluster(**{"nodes.csv": nodes} if nodes else {})).close()
        assert run(["run", queue, *words]) == (2 if nodes else 0)
    error = capsys.readouterr().err
    assert 'the queue has nodes ("n1"), and executor "careless" does not put jobs on' in error


LONG = "x" * 3000
NAMES = ["../../j", "a/b", ".", "", "j.1", "ünï \n", "-rf", "%2E", "\udc80", LONG]
NAMES += [hashlib.sha256(LONG.encode()).hexdigest()]


@pytest.mark.parametrize("kind", ["files", "simulated"])
def test_any_name_of_a_job(tmp_path: Path, kind: str) -> None:
    """Names never become paths: dots, slashes, nothing, 3,000 letters; two jobs never share a
    folder, even if one is called by the digest of the other's name.
    """
    folder = tmp_path / "deep"
    folder.mkdir()
    executor = RIGS[kind](folder).executor()
    for name in NAMES:
        executor.stop(name, 1, 1)
        executor.stop(name + "1", 1, 1)
    again = RIGS[kind](folder).executor() if kind != "simulated" else executor
    assert sorted(o.job_id for o in again.observe()) == sorted([*NAMES, *(n + "1" for n in NAMES)])
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    folders = {Ledger(folder).job_folder(name) for name in NAMES}
    assert len(folders) == len(NAMES) and {one.parent for one in folders} == {folder / "jobs"}


def test_what_a_power_cut_left_of_an_order_is_no_order(tmp_path: Path) -> None:
    """A folder without its order.json, or with an empty one, is swept away by the next object, and
    the order given again is the first."""
    for content in (None, ""):
        place = tmp_path / "open" / "j.1"
        place.mkdir(parents=True)
        if content is not None:
            (place / "order.json").write_text(content)
        executor = FilesExecutor(tmp_path)
        assert not place.exists()
        executor.start(RIGS["simulated"](tmp_path).order("j"))
        assert (place / "order.json").exists()
        shutil.rmtree(place)
