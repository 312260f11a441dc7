"""Features of jobs.csv and interactive.csv, see matrix.py."""

from __future__ import annotations

import numpy as np
from matrix_rounds import EVERY, Tables, feature, of, of_jobs, pick
from second_objectives import RISKY


@feature("jobs.csv: remaining_work", acts=EVERY - {"utility"})
def ends_in_this_round(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["remaining_work"], r.jobs[0]["remaining_work"] = 40.0, 170.0


@feature("jobs.csv: submitted_s", acts=("fairness", "maxmin", "flow"))
def old_jobs(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["submitted_s"] = 1000.0 - float(rng.uniform(100, 9000))


@feature("jobs.csv: total_work", acts=("fairness", "maxmin", "flow"))
def done_before(rng: np.random.Generator, r: Tables) -> None:
    old_jobs(rng, r)
    for j in r.jobs:
        j["total_work"] = j["remaining_work"] * float(rng.uniform(1, 3))


@feature("jobs.csv: state", acts=())
def paused(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["state"] = "paused"  # starts like one that never ran


@feature("jobs.csv: state")
def held_by_its_owner(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2]["state"] = "held"


@feature("jobs.csv: after")
def after_others(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2]["after"] = ["j1", "gone"]


@feature("jobs.csv: after", "jobs.csv: deadline_s")
def stages_with_a_deadline(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2] |= {"after": ["j1", "j0"], "deadline_s": 1000.0 + float(rng.uniform(2000, 30000))}


@feature("jobs.csv: min_gpus")
def wide_jobs(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["min_gpus"] = 2


@feature("jobs.csv: max_gpus")
def narrow_jobs(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1] |= {"max_gpus": 1, "requested_gpus": 1}


@feature("jobs.csv: requested_gpus", acts=("throughput", "cost"))
def other_requests(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["requested_gpus"], r.jobs[1]["requested_gpus"] = 1, 3


@feature("jobs.csv: requested_gpus", "jobs.csv: min_gpus", acts=EVERY)
def requests_without_a_rate(rng: np.random.Generator, r: Tables) -> None:
    r.rates[:] = [row for row in r.rates if row["gpus"] != 4]
    r.jobs[1] |= {"requested_gpus": 4}


@feature("jobs.csv: sizes")
def listed_sizes(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["sizes"], r.jobs[1]["sizes"] = [1, 4], [3]


@feature("jobs.csv: gpu_types")
def one_type_only(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["gpu_types"], r.jobs[1]["gpu_types"] = ["B"], ["A"]


@feature("jobs.csv: weight", acts=EVERY - {"makespan"})
def weights(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["weight"] = float(rng.uniform(0.3, 4))


@feature("jobs.csv: deadline_s", acts=("cost", "tardiness"))
def deadlines(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["deadline_s"] = 1000.0 + float(rng.uniform(0.1, 4)) * j["remaining_work"]


@feature(
    "jobs.csv: deadline_s",
    "jobs.csv: total_work",
    "jobs.csv: checkpoint_every_s",
    acts=("cost", "tardiness", "fairness", "maxmin", "flow"),
)
def deadlines_on_spot(rng: np.random.Generator, r: Tables) -> None:
    done_before(rng, r)
    deadlines(rng, r)
    for j in r.jobs:
        j["checkpoint_every_s"] = 500.0


@feature("jobs.csv: preemptible")
def bound_to_stay(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["preemptible"] = False


@feature("jobs.csv: preemptible", "pools.csv: gpus")
def bound_to_lost_gpus(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["preemptible"], r.pools[0]["gpus"] = False, 1


@feature("jobs.csv: restart_s")
def slow_restarts(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["restart_s"] = pick(rng, 0.0, 120.0, 1000.0)


@feature("jobs.csv: resizes_left")
def no_resizes(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["resizes_left"] = 0


@feature(*of_jobs("checkpoint_s", "checkpoint_every_s"), acts=set(RISKY) - {"utility"})
def checkpoints(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j |= {
            "checkpoint_s": pick(rng, 5.0, 20.0, 90.0),
            "checkpoint_every_s": pick(rng, 60.0, 300.0, 600.0),
        }


@feature("jobs.csv: max_spot_gpus")
def few_spot_gpus(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["max_spot_gpus"], r.jobs[2]["max_spot_gpus"] = 0, 1


@feature("jobs.csv: attained_gpu_s", acts=("utility",))
def served_before(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["attained_gpu_s"] = float(rng.uniform(0, 5000))


@feature("jobs.csv: restarts", "jobs.csv: submitted_s", acts=("flow", "fairness", "maxmin"))
def restarted_before(rng: np.random.Generator, r: Tables) -> None:
    old_jobs(rng, r)
    for j in r.jobs:
        j["restarts"] = int(rng.integers(0, 9))


@feature(*of_jobs("largest_gpus", "every_s", "times"), acts=())
def columns_of_queues_and_policies(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0] |= {"largest_gpus": 4}
    r.jobs[1] |= {"every_s": 600.0, "times": 3}


@feature(
    *of("interactive.csv", "pool", "headroom_gpus", "shrinkable_share"),
    *of_jobs("interactive", "shrinkable"),
)
def headroom(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2]["interactive"], r.jobs[1]["shrinkable"] = True, True
    r.further["interactive"] = [
        {"pool": "p0", "headroom_gpus": 2, "shrinkable_share": 0.5},
        {"pool": "p1", "headroom_gpus": 2},
    ]


@feature(*of("interactive.csv", "sessions_per_hour", "session_s", "session_gpus", "late_share"))
def headroom_for_sessions(rng: np.random.Generator, r: Tables) -> None:
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
