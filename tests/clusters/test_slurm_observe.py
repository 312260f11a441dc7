"""What a Slurm becomes as a snapshot, from answers of 24.11 that a test changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from slurm_looks import Recorded, look, number

from allocator.clusters.adapter import ClusterUnreachable
from allocator.clusters.folder import build_snapshot
from allocator.clusters.slurm.gres import count_gpus
from allocator.clusters.slurm.name_lists import expand_names, expand_numbers
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import UsageError

SAID = {"model": "bert", "min_gpus": 1, "max_gpus": 4, "total_work": 900}


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def said(**fields: Any) -> str:
    """A comment in which a job declares itself."""
    return json.dumps({"allocator": {**SAID, **fields}})


def notes(recorded: Recorded, **settings: Any) -> str:
    return "\n".join(recorded.look(**settings).notes)


def test_the_recorded_answers_are_a_valid_snapshot(recorded: Recorded) -> None:
    """One job on two of 16 and 16 GPUs; it said nothing of itself, so it stays where it is."""
    view = recorded.look()
    problem = validate(build_snapshot("look", view))
    assert problem.pools.pool == ("a100", "v100")
    assert problem.pools.gpus.tolist() == [16, 16]
    assert list(view.tables["placements.csv"]) == [{"job_id": "1", "node": "n1", "gpus": 2}]
    assert not problem.jobs.preemptible[0]
    assert view.details["version"] == [24, 11, 5]
    assert view.details["gres_prefix"] == "gres/gpu"


def test_a_job_says_what_it_can_do(recorded: Recorded) -> None:
    """Sizes, model and work come from the JSON of the comment or the extra field."""
    recorded.add_job(2, comment=said(deadline_s=2e9), tres_per_node="gres/gpu:4")
    recorded.add_job(3, extra=said(sizes=[1, 2, 4]), comment="mine", tres_per_node="gres/gpu:4")
    recorded.add_job(4, comment='{"other": 1}')
    recorded.job["comment"] = said()
    rows = recorded.rows()
    assert [rows["2"][name] for name in ("min_gpus", "max_gpus", "requested_gpus")] == [1, 4, 4]
    assert (rows["2"]["model"], rows["2"]["remaining_work"]) == ("bert", 900)
    assert rows["2"]["deadline_s"] == 2e9
    assert rows["3"]["sizes"] == [1, 2, 4]
    assert (rows["4"]["model"], rows["4"]["sizes"]) == ("job-4", [2])
    assert rows["4"]["remaining_work"] == 3600
    assert "preemptible" not in rows["1"] and rows["1"]["pool"] == "a100"


def test_what_a_job_says_wrong_is_noted_and_does_not_count(recorded: Recorded) -> None:
    """A slip in one job's comment is that job's, and stops nobody's look."""
    recorded.add_job(2, comment=said(min_gpu=1))
    recorded.add_job(3, comment=said(min_gpus="two"))
    recorded.add_job(4, comment=said(min_gpus=8))
    recorded.add_job(5, comment='{"allocator": ')
    rows, told = recorded.rows(), notes(recorded)
    assert all(rows[ident]["sizes"] == [2] for ident in "2345")
    assert 'no parameter "min_gpu"; did you mean "min_gpus"?' in told
    assert 'min_gpus cannot be "two"' in told and "min_gpus 8 is above max_gpus 4" in told


def test_a_size_that_slurm_cannot_change_stays(recorded: Recorded) -> None:
    """--gpus and --gpus-per-task have no field that scontrol changes."""
    recorded.add_job(2, comment=said(), tres_per_node="", tres_per_job="gres/gpu:2")
    recorded.add_job(
        3, comment=said(), tres_per_node="", tres_per_task="gres/gpu:2", tasks=number(2)
    )
    rows = recorded.rows()
    assert (rows["2"]["sizes"], rows["3"]["sizes"]) == ([2], [4])
    assert "scontrol cannot change" in notes(recorded)


def test_partitions_give_defaults(recorded: Recorded) -> None:
    """A partition says what its jobs do not say; a job's own words win."""
    recorded.add_job(2)
    recorded.add_job(3, comment=json.dumps({"allocator": {"max_gpus": 2}}))
    rows = recorded.rows(partitions={"a100": {"min_gpus": 1, "max_gpus": 8, "weight": 3.0}})
    assert (rows["2"]["max_gpus"], rows["2"]["weight"]) == (8, 3.0)
    assert (rows["3"]["max_gpus"], rows["3"]["weight"]) == (2, 3.0)


def test_a_source_of_progress_is_no_column_and_gives_nothing_away(recorded: Recorded) -> None:
    """It is for who runs the job; a job that says nothing else keeps its GPUs. The source that a
    job names replaces all of that of its partition.
    """
    recorded.job["comment"] = json.dumps({"allocator": {"progress_log": "step (?P<step>.+)"}})
    recorded.add_job(2, comment=said(progress_log="step"))
    url = {"progress_url": "http://localhost:80/", "progress_metric": "steps"}
    recorded.add_job(3, comment="")
    view = recorded.look(partitions={"a100": url})
    rows = {row["job_id"]: row for row in view.tables["jobs.csv"]}
    assert rows["1"]["preemptible"] is False and "progress_log" not in rows["1"]
    assert "has no group" in " ".join(view.notes) and rows["2"]["sizes"] == [2]
    found = {job: view.details["jobs"][job]["progress"] for job in "13"}
    assert found == {
        "1": {"ALLOCATOR_PROGRESS_LOG": "step (?P<step>.+)"},
        "3": {
            "ALLOCATOR_PROGRESS_URL": "http://localhost:80/",
            "ALLOCATOR_PROGRESS_METRIC": "steps",
        },
    }


def test_defaults_make_a_job_elastic_only_if_they_say_so(recorded: Recorded) -> None:
    """A running job is stopped where its owner or partition gives it sizes, not for a weight."""
    assert recorded.rows(partitions={"a100": {"weight": 3.0}})["1"]["preemptible"] is False
    assert "preemptible" not in recorded.rows(partitions={"a100": {"max_gpus": 4}})["1"]


@pytest.mark.parametrize(
    "name", ['say "hi"', "tab\there", "línea", "", " ", "#1", "=x", "-", "a\nb", "\x00"]
)
def test_names_of_users_make_no_snapshot_invalid(recorded: Recorded, name: str) -> None:
    """Whatever a user calls a job, an account or a model, the others are still planned for. A name
    that no line of a script can hold is left to Slurm.
    """
    recorded.add_job(2, name=name, account=name, user_name=name or "x", comment=said(model=name))
    recorded.add_job(3, name=name, deadline=number(5), submit_time=number(9e9))
    view = recorded.look()
    validate(build_snapshot("look", view))
    assert len(view.tables["jobs.csv"]) == (3 if name.isprintable() else 1)


def test_only_marked_jobs_are_decided_about_where_that_is_asked(recorded: Recorded) -> None:
    """All others count as occupied GPUs; a job that the plugin holds is queued."""
    hold = {"priority": number(0), "state_reason": "JobHeldUser"}
    recorded.add_job(2, comment=said(), admin_comment="allocator", **hold)
    recorded.add_job(3)
    view = recorded.look(jobs="marked")
    assert [row["job_id"] for row in view.tables["jobs.csv"]] == ["2"]
    assert view.tables["jobs.csv"][0]["state"] == "queued"
    nodes = {row["node"]: row["gpus"] for row in view.tables["nodes.csv"]}
    assert (nodes["n1"], nodes["n2"]) == (2, 4)
    assert view.tables["pools.csv"][0]["gpus"] == 14
    validate(build_snapshot("look", view))


def test_gpus_that_are_not_explained_are_occupied(recorded: Recorded) -> None:
    """What other users' hidden jobs hold is seen by the nodes alone."""
    recorded.node("n2")["gres_used"] = "gpu:a100:3(IDX:0-2)"
    recorded.node("v1")["gres_used"] = "gpu:v100:0(IDX:N/A),shard:v100:2(1/8,1/8)"
    nodes = {row["node"]: row["gpus"] for row in recorded.look().tables["nodes.csv"]}
    assert (nodes["n1"], nodes["n2"], nodes["n3"], nodes["v1"]) == (4, 1, 4, 0)
    assert "shares of its GPUs are in use" in notes(recorded)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["IDLE"], "up"),
        (["MIXED", "PLANNED"], "up"),
        (["IDLE", "DRAIN"], "drain"),
        (["MIXED", "DRAIN"], "drain"),
        (["DOWN", "NOT_RESPONDING"], "down"),
        (["IDLE", "MAINTENANCE"], "down"),
        ("idle*", "up"),
        ("down*", "down"),
        ("drained", "drain"),
        (["IDLE", "POWERING_DOWN"], "down"),
    ],
)
def test_states_of_nodes(recorded: Recorded, states: object, expected: str) -> None:
    """Flags of any version become up, drain or down."""
    recorded.node("n3")["state"] = states
    nodes = {row["node"]: row["state"] for row in recorded.look().tables["nodes.csv"]}
    assert nodes["n3"] == expected


def test_a_job_on_a_drained_node_ends_there(recorded: Recorded) -> None:
    """Slurm lets it end: it is not in the snapshot, and its node offers nothing."""
    recorded.node("n1")["state"] = ["MIXED", "DRAIN"]
    view = recorded.look()
    assert not view.tables["jobs.csv"] and view.tables["pools.csv"][0]["gpus"] == 12
    assert "drained or down" in notes(recorded)
    validate(build_snapshot("look", view))


def test_reserved_nodes_are_not_offered(recorded: Recorded) -> None:
    """A reservation that is active or begins within the round takes its nodes; a later one is
    noted.
    """
    now = recorded.look().config["now_s"]
    (recorded.folder / "reservations.txt").write_text(
        f"ReservationName=soon StartTime={now + 60:.0f} EndTime={now + 9000:.0f} Nodes=n[2-3]"
        " NodeCnt=2 State=INACTIVE\n"
        f"ReservationName=past StartTime=10 EndTime=20 Nodes=v1 State=INACTIVE\n"
        f"ReservationName=later StartTime={now + 9000:.0f} EndTime={now + 9900:.0f} Nodes=n4\n"
    )
    view = recorded.look()
    states = {row["node"]: row["state"] for row in view.tables["nodes.csv"]}
    assert [states[name] for name in ("n1", "n2", "n3", "n4", "v1")] == [
        *("up", "drain", "drain", "up", "up")
    ]
    assert "reservation later begins in 9000 s on n4" in "\n".join(view.notes)


def test_an_array_is_a_job_for_each_task(recorded: Recorded) -> None:
    """Tasks that wait are unfolded, and no more of them are offered than the array lets run."""
    recorded.add_job(
        9, array_job_id=number(9), array_task_string="1-3,7%2", array_max_tasks=number(2)
    )
    recorded.job |= {
        "job_id": 10,
        "array_job_id": number(9),
        "array_task_id": number(0),
        "array_max_tasks": number(2),
    }
    rows = recorded.rows()
    assert list(rows) == ["9_0", "9_1", "9_2", "9_3", "9_7"]
    assert [row["state"] for row in rows.values()] == ["running", "queued", *["held"] * 3]
    assert "its array lets no more tasks run" in notes(recorded)


def test_dependencies_are_kept(recorded: Recorded) -> None:
    """What waits for the end of jobs of the snapshot is `after` them; all else is left to Slurm."""
    recorded.add_job(2, dependency="afterok:1(unfulfilled)")
    recorded.add_job(3, dependency="afterany:1(unfulfilled),afterany:2(unfulfilled)")
    recorded.add_job(4, dependency="afterok:77(unfulfilled)")
    recorded.add_job(5, dependency="after:1+5(unfulfilled)")
    recorded.add_job(6, dependency="afterok:1(unfulfilled)?afterok:2(unfulfilled)")
    recorded.add_job(7, dependency="singleton(unfulfilled)")
    recorded.add_job(8, dependency="afterok:70(fulfilled)")
    recorded.add_job(20, array_job_id=number(20), array_task_string="1-2")
    recorded.add_job(
        21,
        array_job_id=number(21),
        array_task_string="2",
        dependency="aftercorr:20_*(unfulfilled)",
    )
    recorded.add_job(22, dependency="afterok:20_*(unfulfilled)")
    rows = recorded.rows()
    assert (rows["2"]["after"], rows["3"]["after"]) == (["1"], ["1", "2"])
    assert [rows[str(i)]["state"] for i in range(4, 9)] == [*["held"] * 4, "queued"]
    assert rows["21_2"]["after"] == ["20_2"] and rows["22"]["after"] == ["20_1", "20_2"]
    validate(build_snapshot("look", recorded.look()))


def test_heterogeneous_jobs_are_refused_and_occupy(recorded: Recorded) -> None:
    """They are named with the reason, and their GPUs are not offered."""
    recorded.job["het_job_id"] = number(1)
    view = recorded.look()
    assert not view.tables["jobs.csv"]
    assert view.tables["nodes.csv"][0]["gpus"] == 2
    assert "heterogeneous job, which is refused" in notes(recorded)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"state_reason": "JobHeldUser", "priority": number(0)}, "holds it"),
        ({"eligible_time": number(9e9)}, "begins later"),
        ({"resv_name": "maint"}, "waits for a reservation"),
        ({"required_nodes": "n2"}, "asks for nodes by name"),
        ({"excluded_nodes": "n2"}, "excludes nodes by name"),
        ({"state_reason": "Licenses"}, "Slurm says LICENSES"),
        ({"features": "nvlink"}, "no pool of its partition"),
        ({"tres_per_node": "gres/gpu:h100:1"}, "no pool of its partition"),
        ({"node_count": number(2)}, "no pool of its partition"),
        ({"state_reason": "AssocGrpGRES"}, "a limit of accounting"),
        ({"partition": "v100", "tres_per_node": "gres/gpu:9"}, "no pool of its partition"),
    ],
)
def test_waiting_jobs_that_no_plan_may_start(
    recorded: Recorded, fields: dict[str, Any], why: str
) -> None:
    """They are held in the snapshot, with the reason, and left to Slurm."""
    recorded.add_job(2, **fields)
    assert recorded.rows()["2"]["state"] == "held"
    assert why in notes(recorded)
    validate(build_snapshot("look", recorded.look()))


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
    pools = {row["pool"]: row for row in view.tables["pools.csv"]}
    rows = {row["job_id"]: row for row in view.tables["jobs.csv"]}
    assert len(pools) == 5 and sum(row["gpus"] for row in pools.values()) == 16 + 8 + 6
    assert len(rows["2"]["gpu_types"]) == 1 and rows["2"]["gpu_types"][0].startswith("a100@")
    assert "gpu_types" not in rows["3"] and rows["4"]["gpu_types"] == ["t4"]
    assert rows["5"]["state"] == "held"
    assert "v2+t4" in {row["node"] for row in view.tables["nodes.csv"]}
    assert "pools of one GPU type have names of their own" in "\n".join(view.notes)
    validate(build_snapshot("look", view))


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
    for kind, expected in (
        ("account", {"tenant": "vision", "parent": "lab", "weight": 3.0, "max_gpus": 8}),
        ("account", {"tenant": "lab", "parent": None, "weight": 1.0, "max_gpus": 24}),
        ("user", {"tenant": "ann", "parent": None, "weight": 1.0, "max_gpus": 2}),
        ("qos", {"tenant": "urgent", "parent": None, "weight": None, "max_gpus": 4}),
    ):
        view = recorded.look(tenant=kind)
        assert expected in list(view.tables["tenants.csv"])
        validate(build_snapshot("look", view))
    by_type = {"tenant": "vision", "gpu_type": "a100", "max_gpus": 4}
    assert list(recorded.look().tables["quotas.csv"]) == [by_type]
    told = notes(recorded)
    assert "GPUs of type h100, which is no type" in told and 'only with tenant = "qos"' in told


def test_priorities_are_weights_where_that_is_asked(recorded: Recorded) -> None:
    """In proportion to the mean priority; equal otherwise."""
    recorded.add_job(2, priority=number(3))
    assert recorded.rows()["2"]["weight"] is None
    rows = recorded.rows(weight="priority")
    assert (rows["1"]["weight"], rows["2"]["weight"]) == (0.5, 1.5)


def test_jobs_without_gpus_and_ended_jobs_are_left_out(recorded: Recorded) -> None:
    """Neither is in the snapshot, and neither is noted."""
    recorded.add_job(2, tres_per_node="")
    recorded.add_job(3, job_state=["COMPLETED"])
    recorded.add_job(4, job_state=["CANCELLED", "COMPLETING"])
    assert list(recorded.rows()) == ["1"]


def test_fields_that_nobody_knows_do_no_harm(recorded: Recorded) -> None:
    """Unknown fields are ignored, and absent ones are not set."""
    recorded.job["from_the_future"] = {"a": [1]}
    for name in ("extra", "admin_comment", "tres_per_socket", "deadline", "array_task_string"):
        del recorded.job[name]
    recorded.nodes["nodes"][0]["from_the_future"] = 1
    assert list(recorded.rows()) == ["1"]


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("jobs.json", "squeue: nonsense", "no JSON"),
        ("jobs.json", "[]", 'no list "jobs"'),
        ("jobs.json", '{"jobs": [], "errors": [{"error": "down"}]}', "down"),
        ("nodes.json", '{"sinfo": []}', 'no list "nodes"'),
        ("partitions.txt", "", "names no partition"),
    ],
)
def test_answers_that_make_no_sense(recorded: Recorded, file: str, text: str, why: str) -> None:
    """Nothing is concluded from them."""
    recorded.look()
    (recorded.folder / file).write_text(text)
    with pytest.raises(ClusterUnreachable, match=why):
        look(recorded.folder)


def test_an_answer_that_was_not_recorded(recorded: Recorded) -> None:
    """The message names the call whose answer it is."""
    (recorded.folder / "nodes.json").unlink()
    with pytest.raises(ClusterUnreachable, match="scontrol show nodes --json"):
        look(recorded.folder)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"job": "all"}, 'no setting "job"; did you mean "jobs"?'),
        ({"jobs": "some"}, "jobs is one of all, marked"),
        ({"unlimited_s": 0}, "above 0"),
        ({"partitions": {"a100": {"min_gpus": 0}}}, r"\[partitions.a100\]: min_gpus cannot be 0"),
        ({"pools": {"a100": {"prize": 1}}}, 'no column "prize"'),
        ({"config": 3}, r"\[config\] is a table"),
    ],
)
def test_settings_that_make_no_sense(
    recorded: Recorded, settings: dict[str, Any], why: str
) -> None:
    """They are usage errors that name the place."""
    with pytest.raises(UsageError, match=why):
        recorded.look(**settings)


def test_texts_of_slurm() -> None:
    """Lists of names, task lists and GRES in the forms that versions write."""
    assert expand_names("a,b[01-03,7]x") == ["a", "b01x", "b02x", "b03x", "b7x"]
    assert expand_numbers("0-6:3,9") == [0, 3, 6, 9]
    assert dict(count_gpus("gpu:1g.5gb:7(S:0),gpu:a100:1")) == {"1g.5gb": 7, "a100": 1}
    assert dict(count_gpus("gres:gpu:2")) == dict(count_gpus("gres/gpu=2")) == {"gpu": 2}
    assert dict(count_gpus("gres:mps:50,craynetwork:1")) == {}
    with pytest.raises(ClusterUnreachable, match="cannot be read"):
        expand_numbers("1-5,...")
