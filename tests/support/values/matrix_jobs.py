"""Features of jobs.csv and interactive.csv, see matrix.py."""

from __future__ import annotations

from matrix_rounds import EVERY, Tables, feature
from second_objectives import RISKY


@feature(acts=EVERY - {"utility"})
def ends_in_this_round(r: Tables) -> None:
    r.jobs[1]["remaining_work"], r.jobs[0]["remaining_work"] = 40.0, 170.0


@feature(acts=("fairness", "maxmin", "flow"))
def old_jobs(r: Tables) -> None:
    for j in r.jobs:
        j["submitted_s"] = 1000.0 - float(r.rng.uniform(100, 9000))


@feature(acts=("fairness", "maxmin", "flow"))
def done_before(r: Tables) -> None:
    old_jobs(r)
    for j in r.jobs:
        j["total_work"] = j["remaining_work"] * float(r.rng.uniform(1, 3))


@feature(acts=())
def paused(r: Tables) -> None:
    r.jobs[1]["state"] = "paused"  # starts like one that never ran


@feature
def held_by_its_owner(r: Tables) -> None:
    r.jobs[2]["state"] = "held"


@feature
def after_others(r: Tables) -> None:
    r.jobs[2]["after"] = ["j1", "gone"]


@feature
def stages_with_a_deadline(r: Tables) -> None:
    r.jobs[2] |= {"after": ["j1", "j0"], "deadline_s": 1000.0 + float(r.rng.uniform(2000, 30000))}


@feature
def wide_jobs(r: Tables) -> None:
    r.jobs[1]["min_gpus"] = 2


@feature
def narrow_jobs(r: Tables) -> None:
    r.jobs[1] |= {"max_gpus": 1, "requested_gpus": 1}


@feature(acts=("throughput", "cost"))
def other_requests(r: Tables) -> None:
    r.jobs[0]["requested_gpus"], r.jobs[1]["requested_gpus"] = 1, 3


@feature
def requests_without_a_rate(r: Tables) -> None:
    r.rates[:] = [row for row in r.rates if row["gpus"] != 4]
    r.jobs[1] |= {"requested_gpus": 4}


@feature
def listed_sizes(r: Tables) -> None:
    r.jobs[0]["sizes"], r.jobs[1]["sizes"] = [1, 4], [3]


@feature
def one_type_only(r: Tables) -> None:
    r.jobs[0]["gpu_types"], r.jobs[1]["gpu_types"] = ["B"], ["A"]


@feature(acts=EVERY - {"makespan"})
def weights(r: Tables) -> None:
    for j in r.jobs:
        j["weight"] = float(r.rng.uniform(0.3, 4))


@feature(acts=("cost", "tardiness"))
def deadlines(r: Tables) -> None:
    for j in r.jobs:
        j["deadline_s"] = 1000.0 + float(r.rng.uniform(0.1, 4)) * j["remaining_work"]


@feature(acts=("cost", "tardiness", "fairness", "maxmin", "flow"))
def deadlines_on_spot(r: Tables) -> None:
    done_before(r)
    deadlines(r)
    for j in r.jobs:
        j["checkpoint_every_s"] = 500.0


@feature
def bound_to_stay(r: Tables) -> None:
    r.jobs[0]["preemptible"] = False


@feature
def bound_to_lost_gpus(r: Tables) -> None:
    r.jobs[0]["preemptible"], r.pools[0]["gpus"] = False, 1


@feature
def slow_restarts(r: Tables) -> None:
    r.jobs[0]["restart_s"] = r.pick(0.0, 120.0, 1000.0)


@feature
def no_resizes(r: Tables) -> None:
    r.jobs[0]["resizes_left"] = 0


@feature(acts=set(RISKY) - {"utility"})
def checkpoints(r: Tables) -> None:
    for j in r.jobs:
        j |= {
            "checkpoint_s": r.pick(5.0, 20.0, 90.0),
            "checkpoint_every_s": r.pick(60.0, 300.0, 600.0),
        }


@feature
def few_spot_gpus(r: Tables) -> None:
    r.jobs[1]["max_spot_gpus"], r.jobs[2]["max_spot_gpus"] = 0, 1


@feature(acts=("utility",))
def served_before(r: Tables) -> None:
    for j in r.jobs:
        j["attained_gpu_s"] = float(r.rng.uniform(0, 5000))


@feature(acts=("flow", "fairness", "maxmin"))
def restarted_before(r: Tables) -> None:
    old_jobs(r)
    for j in r.jobs:
        j["restarts"] = int(r.rng.integers(0, 9))


@feature(acts=())
def columns_of_queues_and_policies(r: Tables) -> None:
    r.jobs[0] |= {"largest_gpus": 4}
    r.jobs[1] |= {"every_s": 600.0, "times": 3}


@feature
def headroom(r: Tables) -> None:
    r.jobs[2]["interactive"], r.jobs[1]["shrinkable"] = True, True
    r.further["interactive"] = [
        {"pool": "p0", "headroom_gpus": 2, "shrinkable_share": 0.5},
        {"pool": "p1", "headroom_gpus": 2},
    ]


@feature
def headroom_for_sessions(r: Tables) -> None:
    r.further["interactive"] = [
        {
            "pool": p,
            "sessions_per_hour": 2.0,
            "session_s": 500.0,
            "session_gpus": 2,
            "late_share": 0.2,
        }
        for p in ("p0", "p1")
    ]
