"""What a Slurm becomes as a snapshot, from answers of 24.11 that a test changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_tables import show
from slurm_looks import Recorded, look
from text_tables import cases

from allocator.clusters.adapter import ClusterUnreachable
from allocator.clusters.folder import build_snapshot
from allocator.clusters.slurm.values import count_gpus, expand_names, expand_numbers
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import UsageError

SAID = {"model": "bert", "min_gpus": 1, "max_gpus": 4, "total_work": 900}


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    """Answers that a test changes; a snapshot of them keeps every rule."""
    made = Recorded(tmp_path)
    yield made
    validate(build_snapshot("look", made.look()))


def said(**fields: Any) -> str:
    """A comment in which a job declares itself."""
    return json.dumps({"allocator": {**SAID, **fields}})


def test_the_recorded_answers_are_a_valid_snapshot(recorded: Recorded) -> None:
    """One job on two of 16 and 16 GPUs; it said nothing of itself, so it stays where it is."""
    assert recorded.show("pool gpus", "pools") == "a100 16; v100 16"
    assert recorded.show("job_id node gpus", "placements") == "1 n1 2"
    assert recorded.show("job_id preemptible") == "1 False"
    details = recorded.look().details
    assert (details["version"], details["gres_prefix"]) == ([24, 11, 5], "gres/gpu")


def test_a_job_says_what_it_can_do(recorded: Recorded) -> None:
    """Sizes, model and work come from the JSON of the comment or the extra field. --gpus and
    --gpus-per-task have no field that scontrol changes.
    """
    recorded.add_job(2, comment=said(deadline_s=2e9), tres_per_node="gres/gpu:4")
    recorded.add_job(3, extra=said(sizes=[1, 2, 4]), comment="mine", tres_per_node="gres/gpu:4")
    recorded.add_job(4, comment='{"other": 1}')
    recorded.add_job(5, comment=said(), tres_per_node="", tres_per_job="gres/gpu:2")
    recorded.add_job(6, comment=said(), tres_per_node="", tres_per_task="gres/gpu:2", tasks=2)
    recorded.change(comment=said())
    assert recorded.show("job_id model remaining_work min_gpus max_gpus sizes requested_gpus") == (
        "1 bert 900 1 4 - 2; 2 bert 900 1 4 - 4; 3 bert 900 1 4 1,2,4 4; 4 job-4 3600 2 2 2 2; "
        "5 bert 900 2 2 2 2; 6 bert 900 4 4 4 4"
    )
    assert recorded.show("preemptible deadline_s pool").startswith("- - a100; - 2000000000 -; ")
    assert "scontrol cannot change" in recorded.notes()


def test_what_a_job_says_wrong_is_noted_and_does_not_count(recorded: Recorded) -> None:
    """A slip in one job's comment is that job's, and stops nobody's look."""
    wrong = (said(min_gpu=1), said(min_gpus="two"), said(min_gpus=8), '{"allocator": ')
    for ident, comment in enumerate(wrong, 2):
        recorded.add_job(ident, comment=comment)
    told = recorded.notes()
    assert recorded.show("job_id sizes") == "1 2; 2 2; 3 2; 4 2; 5 2"
    assert 'no parameter "min_gpu"; did you mean "min_gpus"?' in told
    assert 'min_gpus cannot be "two"' in told and "min_gpus 8 is above max_gpus 4" in told


def test_partitions_give_defaults(recorded: Recorded) -> None:
    """A partition says what its jobs do not say; a job's own words win. A running job is stopped
    where its owner or partition gives it sizes, not for a weight.
    """
    recorded.add_job(2)
    recorded.add_job(3, comment='{"allocator": {"max_gpus": 2}}')
    defaults = {"a100": {"min_gpus": 1, "max_gpus": 8, "weight": 3.0}}
    columns = "job_id max_gpus weight preemptible"
    assert recorded.show(columns, partitions=defaults) == "1 8 3 -; 2 8 3 -; 3 2 3 -"
    assert recorded.show("preemptible", partitions={"a100": {"weight": 3.0}})[:5] == "False"


def test_a_source_of_progress_is_no_column_and_gives_nothing_away(recorded: Recorded) -> None:
    """It is for who runs the job; a job that says nothing else keeps its GPUs. The source that a
    job names replaces all of that of its partition.
    """
    recorded.change(comment='{"allocator": {"progress_log": "step (?P<step>.+)"}}')
    recorded.add_job(2, comment=said(progress_log="step"))
    url = {"progress_url": "http://localhost:80/", "progress_metric": "steps"}
    recorded.add_job(3, comment="")
    view = recorded.look(partitions={"a100": url})
    shown = show(view, "jobs", "job_id preemptible progress_log sizes")
    assert shown.startswith("1 False - 2; 2 - - 2; ") and "has no group" in " ".join(view.notes)
    assert {job: view.details["jobs"][job]["progress"] for job in "13"} == {
        "1": {"ALLOCATOR_PROGRESS_LOG": "step (?P<step>.+)"},
        "3": {f"ALLOCATOR_{name.upper()}": value for name, value in url.items()},
    }


@pytest.mark.parametrize(
    "name", ['say "hi"', "tab\there", "línea", "", " ", "#1", "=x", "-", "a\nb", "\x00"]
)
def test_names_of_users_make_no_snapshot_invalid(recorded: Recorded, name: str) -> None:
    """Whatever a user calls a job, an account or a model, the others are still planned for. A name
    that no line of a script can hold is left to Slurm.
    """
    recorded.add_job(2, name=name, account=name, user_name=name or "x", comment=said(model=name))
    recorded.add_job(3, name=name, deadline=5, submit_time=9e9)
    assert len(recorded.look().tables["jobs.csv"]) == (3 if name.isprintable() else 1)


def test_only_marked_jobs_are_decided_about_where_that_is_asked(recorded: Recorded) -> None:
    """All others count as occupied GPUs; a job that the plugin holds is queued."""
    hold = {"priority": 0, "state_reason": "JobHeldUser"}
    recorded.add_job(2, comment=said(), admin_comment="allocator", **hold)
    recorded.add_job(3)
    view = recorded.look(jobs="marked")
    assert show(view, "jobs", "job_id state") == "2 queued"
    assert show(view, "nodes", "node gpus").startswith("n1 2; n2 4; ")
    assert show(view, "pools", "gpus").startswith("14; ")
    validate(build_snapshot("look", view))


def test_gpus_that_are_not_explained_are_occupied(recorded: Recorded) -> None:
    """What other users' hidden jobs hold is seen by the nodes alone."""
    recorded.node("n2")["gres_used"] = "gpu:a100:3(IDX:0-2)"
    recorded.node("v1")["gres_used"] = "gpu:v100:0(IDX:N/A),shard:v100:2(1/8,1/8)"
    assert recorded.show("node gpus", "nodes") == "n1 4; n2 1; n3 4; n4 4; v1 0; v2 8"
    assert "shares of its GPUs are in use" in recorded.notes()


@pytest.mark.parametrize(
    ("states", "expected"),
    cases("""
IDLE -> up
MIXED PLANNED -> up
IDLE DRAIN -> drain
MIXED DRAIN -> drain
DOWN NOT_RESPONDING -> down
IDLE MAINTENANCE -> down
IDLE POWERING_DOWN -> down
idle* -> up
down* -> down
drained -> drain"""),
)
def test_states_of_nodes(recorded: Recorded, states: str, expected: str) -> None:
    """Flags of any version become up, drain or down."""
    recorded.node("n3")["state"] = states.split() if states.isupper() else states
    assert f"n3 {expected};" in recorded.show("node state", "nodes")


def test_a_job_on_a_drained_node_ends_there(recorded: Recorded) -> None:
    """Slurm lets it end: it is not in the snapshot, and its node offers nothing."""
    recorded.node("n1")["state"] = ["MIXED", "DRAIN"]
    assert (recorded.show("job_id"), recorded.show("gpus", "pools")) == ("", "12; 16")
    assert "drained or down" in recorded.notes()


def test_reserved_nodes_are_not_offered(recorded: Recorded) -> None:
    """Nodes of a reservation that is active, or begins later, leave and are back. Those that leave
    within the round do not count."""
    now = int(recorded.look().config["now_s"])
    (recorded.folder / "reservations.txt").write_text(
        f"ReservationName=soon StartTime={now + 60} EndTime={now + 9000} Nodes=n[2-3]"
        " NodeCnt=2 State=INACTIVE\n"
        "ReservationName=past StartTime=10 EndTime=20 Nodes=v1 State=INACTIVE\n"
        f"ReservationName=later StartTime={now + 9001} EndTime={now + 9900} Nodes=n4\n"
    )
    shown = recorded.show("node leaves_s", "nodes")
    assert shown == f"n1 -; n2 {now + 60}; n3 {now + 60}; n4 {now + 9001}; v1 -; v2 -"
    assert (
        recorded.show("returns_s", "nodes") == f"-; {now + 9000}; {now + 9000}; {now + 9900}; -; -"
    )
    assert recorded.show("gpus", "pools") == "8; 16"
    assert "node n4: reservation later has the nodes in 9001 s" in recorded.notes()


def test_an_array_is_a_job_for_each_task(recorded: Recorded) -> None:
    """Tasks that wait are unfolded, and no more of them are offered than the array lets run."""
    recorded.add_job(9, array_job_id=9, array_task_string="1-3,7%2", array_max_tasks=2)
    recorded.change(job_id=10, array_job_id=9, array_task_id=0, array_max_tasks=2)
    rows = "9_0 running; 9_1 queued; 9_2 held; 9_3 held; 9_7 held"
    assert recorded.show("job_id state") == rows
    assert "its array lets no more tasks run" in recorded.notes()


def test_dependencies_are_kept(recorded: Recorded) -> None:
    """What waits for the end of jobs of the snapshot is `after` them; all else is left to Slurm."""
    waits = (
        "afterok:1",
        "afterany:1(unfulfilled),afterany:2",
        "afterok:77",
        "after:1+5",
        "afterok:1(unfulfilled)?afterok:2",
        "singleton",
    )
    for ident, text in enumerate(waits, 2):
        recorded.add_job(ident, dependency=f"{text}(unfulfilled)")
    recorded.add_job(8, dependency="afterok:70(fulfilled)")
    recorded.add_job(20, array_job_id=20, array_task_string="1-2")
    own = {"array_job_id": 21, "array_task_string": "2"}
    recorded.add_job(21, **own, dependency="aftercorr:20_*(unfulfilled)")
    recorded.add_job(22, dependency="afterok:20_*(unfulfilled)")
    assert recorded.show("job_id state after") == (
        "1 running -; 2 queued 1; 3 queued 1,2; "
        "4 held -; 5 held -; 6 held -; 7 held -; 8 queued -; "
        "20_1 queued -; 20_2 queued -; 21_2 queued 20_2; 22 queued 20_1,20_2"
    )


def test_heterogeneous_jobs_are_refused_and_occupy(recorded: Recorded) -> None:
    """They are named with the reason, and their GPUs are not offered."""
    recorded.change(het_job_id=1)
    assert recorded.show("job_id") == "" and recorded.show("gpus", "nodes").startswith("2; ")
    assert "heterogeneous job, which is refused" in recorded.notes()


@pytest.mark.parametrize(
    ("fields", "why"),
    cases("""
{"state_reason": "JobHeldUser", "priority": 0} -> holds it
{"eligible_time": 9e9} -> begins later
{"resv_name": "maint"} -> waits for a reservation
{"required_nodes": "n2"} -> asks for nodes by name
{"excluded_nodes": "n2"} -> excludes nodes by name
{"state_reason": "Licenses"} -> Slurm says LICENSES
{"features": "nvlink"} -> no pool of its partition
{"tres_per_node": "gres/gpu:h100:1"} -> no pool of its partition
{"node_count": 2} -> no pool of its partition
{"partition": "v100", "tres_per_node": "gres/gpu:9"} -> no pool of its partition
{"state_reason": "AssocGrpGRES"} -> a limit of accounting"""),
)
def test_waiting_jobs_that_no_plan_may_start(recorded: Recorded, fields: str, why: str) -> None:
    """They are held in the snapshot, with the reason, and left to Slurm."""
    recorded.add_job(2, **json.loads(fields))
    assert recorded.show("job_id state") == "1 running; 2 held"
    assert why in recorded.notes()


def test_pools_are_what_jobs_can_tell_apart(recorded: Recorded) -> None:
    """Overlapping partitions, features that are asked for, nodes with two types of GPUs."""
    for name in ("n1", "n2", "n3", "n4", "v1", "v2"):
        recorded.node(name)["partitions"].append("all")
    recorded.node("n4")["active_features"] = ["nvlink", "big"]
    recorded.node("v2")["gres"] = "gpu:v100:4,gpu:t4:2(S:0-1)"
    with (recorded.folder / "partitions.txt").open("a") as text:
        text.write("PartitionName=all Nodes=n[1-4],v[1-2] State=UP\n")
        text.write("PartitionName=old Nodes=n[1-4] State=DOWN\n")
    recorded.add_job(2, features="nvlink|other")
    recorded.add_job(3, partition="all,old")
    recorded.add_job(4, partition="all", tres_per_node="gres/gpu:t4:2")
    recorded.add_job(5, partition="old")
    view = recorded.look()
    pools = view.tables["pools.csv"]
    assert len(pools) == 5 and sum(row["gpus"] for row in pools) == 16 + 8 + 6
    _, two, *others = show(view, "jobs", "job_id state gpu_types").split("; ")
    assert two.startswith("2 queued a100@") and "," not in two
    assert others[:2] == ["3 queued -", "4 queued t4"] and others[2].startswith("5 held")
    assert "v2+t4" in show(view, "nodes", "node").split("; ")
    assert "pools of one GPU type have names of their own" in "\n".join(view.notes)


def test_accounts_and_qos_are_tenants_with_quotas(recorded: Recorded) -> None:
    """The tree of accounts with its limits, also by GPU type; users or QOS where that is asked."""
    (recorded.folder / "associations.txt").write_text(
        "test|root||||gres/gpu=99|1\n"
        "test|lab|||root|gres/gpu=24|1\n"
        "test|vision|||lab|cpu=100,gres/gpu=8,gres/gpu:a100=4,gres/gpu:h100=1|3\n"
        "test|vision|ann||vision|gres/gpu=2|1\n"
        "test|vision|ann|a100|vision|gres/gpu=1|1\n"
        "other|vision|||root|gres/gpu=7|1\n"
    )
    (recorded.folder / "qos.txt").write_text("normal||0\nurgent|gres/gpu=4|100\n")
    recorded.add_job(2, account="vision", user_name="ann", qos="urgent")
    for kind, *expected in (
        ("account", "vision lab 3 8", "lab - 1 24"),
        ("user", "ann - 1 2"),
        ("qos", "urgent - - 4"),
    ):
        view = recorded.look(tenant=kind)
        assert {*expected} <= {*show(view, "tenants", "tenant parent weight max_gpus").split("; ")}
        validate(build_snapshot("look", view))
    by_type = {"tenant": "vision", "gpu_type": "a100", "max_gpus": 4}
    assert list(recorded.look().tables["quotas.csv"]) == [by_type]
    told = recorded.notes()
    assert "GPUs of type h100, which is no type" in told and 'only with tenant = "qos"' in told


def test_priorities_are_weights_where_that_is_asked(recorded: Recorded) -> None:
    """In proportion to the mean priority; equal otherwise."""
    recorded.add_job(2, priority=3)
    assert recorded.show("weight") == "-; -"
    assert recorded.show("job_id weight", weight="priority") == "1 0.5; 2 1.5"


def test_jobs_without_gpus_and_ended_jobs_are_left_out(recorded: Recorded) -> None:
    """Neither is in the snapshot, and neither is noted. Unknown fields are ignored, and absent ones
    are not set.
    """
    recorded.add_job(2, tres_per_node="")
    recorded.add_job(3, job_state=["COMPLETED"])
    recorded.add_job(4, job_state=["CANCELLED", "COMPLETING"])
    recorded.job["from_the_future"] = {"a": [1]}
    for name in ("extra", "admin_comment", "tres_per_socket", "deadline", "array_task_string"):
        del recorded.job[name]
    recorded.nodes["nodes"][0]["from_the_future"] = 1
    assert recorded.show("job_id") == "1"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    cases("""
jobs.json -> squeue: nonsense -> no JSON
jobs.json -> [] -> no list "jobs"
jobs.json -> {"jobs": [], "errors": [{"error": "down"}]} -> down
nodes.json -> {"sinfo": []} -> no list "nodes"
nodes.json -> MISSING -> scontrol show nodes --json
partitions.txt ->  -> names no partition
partitions.txt -> NodeName=x -> names no partition"""),
)
def test_answers_that_make_no_sense(tmp_path: Path, file: str, text: str, why: str) -> None:
    """The look ends with an error that says what is wrong, or which command gave no answer."""
    folder = Recorded(tmp_path).folder
    (folder / file).write_text(text)
    if text == "MISSING":
        (folder / file).unlink()
    with pytest.raises(ClusterUnreachable, match=why):
        look(folder)


@pytest.mark.parametrize(
    ("settings", "why"),
    cases("""
{"job": "all"} -> no setting "job"; did you mean "jobs"?
{"jobs": "some"} -> jobs is one of all, marked
{"unlimited_s": 0} -> above 0
{"partitions": {"a100": {"min_gpus": 0}}} -> [partitions.a100]: min_gpus cannot be 0
{"pools": {"a100": {"prize": 1}}} -> no column "prize"
{"config": 3} -> [config] is a table"""),
)
def test_settings_that_make_no_sense(recorded: Recorded, settings: str, why: str) -> None:
    """They are usage errors that name the place."""
    with pytest.raises(UsageError) as caught:
        recorded.look(**json.loads(settings))
    assert why in str(caught.value)


def test_texts_of_slurm() -> None:
    """Lists of names, task lists and GRES in the forms that versions write."""
    assert expand_names("a,b[01-03,7]x") == ["a", "b01x", "b02x", "b03x", "b7x"]
    assert expand_numbers("0-6:3,9") == [0, 3, 6, 9]
    assert dict(count_gpus("gpu:1g.5gb:7(S:0),gpu:a100:1")) == {"1g.5gb": 7, "a100": 1}
    assert dict(count_gpus("gres:gpu:2")) == dict(count_gpus("gres/gpu=2")) == {"gpu": 2}
    assert dict(count_gpus("gres:mps:50,craynetwork:1")) == {}
    with pytest.raises(ClusterUnreachable, match="cannot be read"):
        expand_numbers("1-5,...")
