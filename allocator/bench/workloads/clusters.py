"""Generators of workloads on clusters whose GPUs stay."""

from dataclasses import replace

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.draw import Asked
from allocator.bench.workloads.parts.figures import FIGURES, by_size
from allocator.bench.workloads.parts.jobs import (
    checkpoints,
    draw_demand,
    draw_training,
    pools_of,
)
from allocator.bench.workloads.parts.tables import NODE, Columns, GeneratedWorkload, columns_of
from allocator.domain.problem import Floats, Ints
from allocator.objects import Record

FEWEST = 32  # GPUs of a cluster that is sized for its window


def reproduction(asked: Asked) -> GeneratedWorkload:
    """Return the workload on which the published allocator is reproduced.

    The source is "MIP for elastic training", ModelArts 2021.

    - 64 GPUs in one pool, rounds of 300 s, Poisson arrivals, `load` jobs per minute.
    - The request is 1, 2, 4 or 8 GPUs with probability .5, .2, .15, .15.
    - The run time at the request is log-normal with median 40 minutes, sigma 1.2, at most 1,200
      minutes.
    - The speed follows Amdahl's law. The parallel share of each job is uniform on (.9, .995).
    - A job may hold any power of two up to four times its request, at most 32.
    - A running job that changes size pauses for 30 s; starting and resuming cost nothing.

    Work is counted in seconds on one GPU, so that the rate of every model on one GPU is 1.
    """
    f, rng, jobs = asked.figures, asked.rng, asked.jobs
    gap_s: Floats = rng.exponential(60.0 / asked.load, jobs)
    submitted: Floats = np.cumsum(gap_s).round(1)
    requested = draw.draw_keys(rng, by_size(f["sizes"]), jobs)
    run_s = f["median_s"] * np.exp(rng.normal(0.0, f["sigma"], jobs))
    run_s = np.minimum(run_s, f["longest_s"])
    parallel = draw.round_digits(rng.uniform(0.9, 0.995, jobs), 4)
    largest = np.minimum(32, 4 * requested)
    models = draw.names(jobs, "model")
    work = draw.round_digits(run_s / ((1.0 - parallel) + parallel / requested), 6)
    workload = draw.job_columns(submitted, models, work, requested, largest)
    sizes = [tuple(2**i for i in range(most.bit_length())) for most in largest.tolist()]
    curves = columns_of(
        {
            "model": model,
            "gpu_type": "GPU",
            "kind": "amdahl",
            "parameters": {"max_gpus": 32, "parallel": share, "rate_1": 1},
        }
        for model, share in zip(models, parallel.tolist(), strict=True)
    )
    return GeneratedWorkload.of(
        asked,
        float(submitted[-1]),
        workload={**workload, "sizes": sizes},
        pools=columns_of(pools_of(asked)),
        models=curves,
    )


# --- bursty
LARGEST_BATCH = 400  # and at most an eighth of all jobs
SPACING_S = 6.5  # mean time between the jobs of a batch
WANDER, MEMORY = 1.2, 0.7  # sd of ln(hourly rate), correlation of consecutive hours
ALIKE = 0.97  # correlation of the normal scores of durations within a batch


def bursty(asked: Asked) -> GeneratedWorkload:
    """Return heavy-tailed durations and sweeps of similar jobs, calibrated on Philly.

    Two of six tenants submit 70 % of the jobs, mostly sweeps of one-GPU jobs. The duration is drawn
    given the number of GPUs, so that few large jobs carry most of the work. Submissions are batches
    of near-identical jobs that are seconds apart. Batches come at an hourly rate that varies by
    orders of magnitude (log-normal, correlated from hour to hour). Sizes and durations are drawn in
    strata, so that a small workload has its share of large jobs too.

    Without `gpus` the cluster is sized for the window. The window is whole days, at least one, and
    long enough that submissions are not more frequent than on Philly. `load` is the GPU-hours
    demanded at the requested sizes / the GPU-hours of the cluster while jobs are submitted.
    """
    philly = FIGURES["philly"]
    rng, jobs = asked.rng, asked.jobs
    names = list(philly["tenants"])
    batch, tenant, size = _batches(asked, philly)
    jobs_of, each = np.bincount(batch), np.empty(len(size))
    for k in np.unique(size):  # scores are spread evenly over the jobs of each size
        each[size == k] = draw.scores_in_strata(rng, jobs_of[size == k])
    score = np.sqrt(ALIKE) * each[batch] + np.sqrt(1.0 - ALIKE) * rng.normal(size=jobs)
    if asked.gpus is not None:
        size = np.minimum(size, asked.gpus)
    days, longest_s = _window(asked, philly["jobs_per_h"])
    run_s = draw.duration_s(size[batch], score, longest_s)
    gpus = asked.gpus or _cluster_gpus(size[batch] * run_s, days, asked.load)
    size = np.minimum(size, gpus)
    requested = size[batch]
    training = draw_training(rng, requested, run_s, group=batch)
    window = training.demand / (gpus * asked.load)
    submitted = _submissions(rng, batch, window)
    order = np.argsort(submitted, kind="stable")
    wide = asked.draw_largest(size, min(64, gpus))[batch]
    training = replace(
        training,
        **{name: getattr(training, name)[order] for name in ("model", "work", "requested")},
    )
    return training.workload(
        asked,
        window,
        submitted[order],
        wide[order],
        pools_of(asked, gpus),
        {"tenant": np.array(names)[tenant[batch][order]]},
        tenants={"tenant": names},
    )


def _batches(asked: Asked, philly: Record) -> tuple[Ints, Ints, Ints]:
    """Return the batch of each job (J,), and tenant and GPUs per job of each batch (batches,)."""
    share, sweeping = philly["tenants"], philly["sweeping"]
    f, rng, jobs = asked.figures, asked.rng, asked.jobs
    sweeps = round(jobs * sum(share[n] for n in sweeping))
    parts: list[tuple[Ints, Ints, Ints]] = []
    first = 0
    for i, (count, sizes) in enumerate(((sweeps, "sweepers"), (jobs - sweeps, "others"))):
        most = min(LARGEST_BATCH, max(2, jobs // 8))
        is_alone = rng.random(count) < f["alone"][i]
        several = np.floor(2.0 * rng.random(count) ** (-1.0 / f["tail"][i]))
        ends = np.cumsum(np.minimum(np.where(is_alone, 1.0, several), most)).astype(np.int64)
        own = np.searchsorted(ends, np.arange(count), side="right")
        jobs_of = np.bincount(own)
        ours = {t: share[n] for t, n in enumerate(share) if (n in sweeping) == (i == 0)}
        tenant = draw.draw_in_strata(rng, ours, jobs_of)
        parts.append(
            (own + first, tenant, draw.draw_in_strata(rng, by_size(philly[sizes]), jobs_of))
        )
        first += len(jobs_of)
    batch, tenant, size = (np.concatenate(part) for part in zip(*parts, strict=True))
    return batch, tenant, size


def _submissions(rng: draw.Rng, batch: Ints, window: float) -> Floats:
    """Return submission times in whole seconds, shape (J,).

    Each batch comes at a random time of the varying rate, and its jobs follow closely.
    """
    hours = max(1, int(np.ceil(window / 3_600.0)))
    rate = np.exp(WANDER * draw.autoregression(rng, hours, MEMORY))
    start = rng.permutation(draw.arrivals(rng, rate, window / hours, int(batch[-1]) + 1))
    first = np.concatenate([[True], batch[1:] != batch[:-1]])
    passed = np.cumsum(rng.exponential(SPACING_S, len(batch)))
    at: Floats = np.floor(np.minimum(start[batch] + passed - passed[first][batch], window))
    return at


def _window(asked: Asked, per_h: float) -> tuple[int, float]:
    """Return the days of a window, and the longest run at the requested size in seconds.

    A run takes at most half of the window, and at most a week: Philly's own runs of up to 53 days
    would decide every comparison alone.
    """
    days = max(asked.figures["days"], round(asked.jobs / per_h / 24.0))
    return days, 3_600.0 * min(12.0 * days, 168.0)


def _cluster_gpus(gpu_s: Floats, days: int, load: float) -> int:
    """Return GPUs in whole nodes, at least FEWEST, on which the demand is about this load."""
    return max(FEWEST, NODE * round(float(gpu_s.sum()) / (days * 86_400.0 * load) / NODE))


def diurnal(asked: Asked) -> GeneratedWorkload:
    """Return submissions by hour of the day and day of the week.

    The figures are those of the Helios trace (Hu et al., SC 2021), and of Venus, one of its
    clusters. Submissions are a Poisson process from Monday midnight on, whose rate follows the
    hours and days of Venus. Durations are log-normal with the median and mean of all of Helios. The
    mean number of GPUs that a job requests is that of Venus; how many jobs request each number is
    assumed.

    Without `gpus` the cluster is sized for the window. The window is whole days, at least two, and
    long enough that submissions are not more frequent than on Venus. `load` is the GPU-hours
    demanded at the requested sizes / the GPU-hours of the cluster while jobs are submitted.
    """
    f, venus = asked.figures, FIGURES["venus"]
    rng, jobs = asked.rng, asked.jobs
    median, mean = venus["duration_s"]["median"], venus["duration_s"]["mean"]
    sigma = float(np.sqrt(2.0 * np.log(mean / median)))
    run_s = draw.lognormal_in_strata(rng, median, sigma, jobs)
    days, longest_s = _window(asked, venus["jobs_per_h"])
    run_s = np.clip(run_s, f["shortest_s"], longest_s)
    requested = asked.draw_sizes()
    gpus = asked.gpus or _cluster_gpus(requested * run_s, days, asked.load)
    requested = np.minimum(requested, gpus)
    training = draw_training(rng, requested, run_s)
    window = training.demand / (gpus * asked.load)
    teams = f["teams"]
    team = rng.choice(list(teams), jobs, p=list(teams.values()))
    # slots from Monday midnight on, at most five minutes long, that fill the window exactly
    slots = int(np.ceil(window / 300.0))
    middle = (np.arange(slots) + 0.5) * (window / slots)
    hour = (middle // 3_600).astype(np.int64) % 24
    day = (middle // 86_400).astype(np.int64) % 7
    rate = np.array(venus["hours"], float)[hour] * np.array(venus["weekdays"])[day]
    submitted = np.floor(draw.arrivals(rng, rate, window / slots, jobs))
    return training.workload(
        asked,
        window,
        submitted,
        asked.draw_largest(requested, min(64, gpus)),
        pools_of(asked, gpus),
        {"tenant": team},
        tenants={"tenant": list(teams)},
    )


def mixed(asked: Asked) -> GeneratedWorkload:
    """Return jobs on four GPU types, with speeds by model and type, prices and a budget.

    The GPU-hours of a job on V100s are drawn first (classes of the Philly trace from 0.1 GPU-hours
    on). Its model and its request follow from them, as in the workloads of Pollux and Sia. Each
    model variant has its own speed-up of an A100 over a V100, and its own overhead of a further
    GPU. A quarter of the jobs name the types that they accept. All jobs write checkpoints, so that
    losing GPUs costs minutes.

    `load` is the V100-hours demanded at the requested sizes / the V100-hours that the cluster has
    while jobs are submitted. A GPU of another type counts as many V100s as it is faster for this
    workload (mean over the work). The budget buys a fifth less than the whole cluster; the load
    does not account for that.
    """
    f, rng, jobs = asked.figures, asked.rng, asked.jobs
    kind = draw.draw_records(rng, f["classes"], jobs)
    low, high = np.array([c["hours"] for c in kind]).T
    gpu_s = 3_600.0 * np.exp(rng.uniform(np.log(low), np.log(high)))
    pick = rng.integers(0, 12, jobs).tolist()
    pools = pools_of(asked)
    requests = [c["requests"][i % len(c["requests"])] for c, i in zip(kind, pick, strict=True)]
    requested = np.minimum(np.array(requests, np.int64), min(p["gpus"] for p in pools))
    training = draw_training(rng, requested, gpu_s / requested, pools)
    window = training.demand / (training.count_v100s(pools) * asked.load)
    tenants, accepted = f["tenants"], f["accepted"]
    names, share = ([t[name] for t in tenants] for name in ("tenant", "share"))
    tenant = rng.choice(names, jobs, p=share)
    picky = np.where(rng.random(jobs) < f["picky"], rng.integers(0, len(accepted), jobs), -1)
    submitted = asked.draw_submissions(window)
    wide = asked.draw_largest(requested, 32)
    columns: Columns = {
        "gpu_types": [None if p < 0 else tuple(accepted[p]) for p in picky.tolist()],
        "tenant": tenant,
        **checkpoints(jobs),
    }
    total = sum(p["gpus"] for p in pools)
    limits = {
        "tenant": names,
        "weight": [t["weight"] for t in tenants],
        **{
            name: [int(total * t[name]) if name in t else None for t in tenants]
            for name in ("max_gpus", "guaranteed_gpus")
        },
    }
    hourly_cost = sum(p["gpus"] * p["price_per_gpu_hour"] for p in pools)
    workload = training.workload(asked, window, submitted, wide, pools, columns, tenants=limits)
    budget = {"budget_per_hour": round(f["budget"] * hourly_cost)}
    return replace(workload, config={**workload.config, **budget})


def heterogeneous(asked: Asked) -> GeneratedWorkload:
    """Return five applications on three GPU types, as in the evaluation of Sia.

    The cluster has 24 T4, 24 RTX 2080 Ti and 16 A100; rounds last 60 s. Applications, their shares,
    requests, restart delays, run times and speed-ups by type are those of the published workloads
    and profiles (Jayaram Subramanya et al., SOSP 2023, section 4). The run time of a job varies by
    a log-normal factor. Submissions are Poisson at a rate that varies from hour to hour. Sia has
    160 jobs at 20 an hour; heavy load here is 40 an hour. A job may hold any size from 1 to 24 GPUs
    that the nodes of its pool allow.

    `load` is jobs per hour. Work is counted in hours on one A100.
    """
    spread = 0.3  # sd of ln(work) within an application; assumed, 0 in the published workloads
    applications = asked.figures["applications"]
    rng, jobs = asked.rng, asked.jobs
    apps = draw.draw_records(rng, applications, jobs)
    work = np.array([a["hours"][-1] for a in apps]) * np.exp(
        spread * rng.normal(size=jobs) - 0.5 * spread**2
    )
    requests = [by_size(a["requests"]) for a in apps]
    requested = [int(rng.choice(list(r), p=list(r.values()))) for r in requests]
    pools = pools_of(asked)
    most = max(p["gpus"] for p in pools)
    window = jobs / asked.load * 3_600.0
    hours = max(1, round(window / 3_600.0))
    # sd of ln(hourly rate), correlation of consecutive hours: gaps vary by 1.2
    rate = np.exp(0.5 * draw.autoregression(rng, hours, 0.6))
    workload: Columns = {
        **draw.job_columns(
            np.floor(draw.arrivals(rng, rate, window / hours, jobs)),
            [a["name"] for a in apps],
            draw.round_digits(work, 5),
            np.minimum(requested, most),
            np.full(jobs, min(24, most)),
        ),
        "restart_s": [a["restart_s"] for a in apps],
    }
    curves = columns_of(
        {
            "model": a["name"],
            "gpu_type": pool["gpu_type"],
            "kind": "overhead",
            "parameters": {"c": c, "rate_1": float(f"{a['hours'][-1] / hours / 3_600.0:.5g}")},
        }
        for a in applications
        if a in apps
        for pool, hours, c in zip(pools, a["hours"], a["overhead"], strict=True)
    )
    return GeneratedWorkload.of(
        asked, window, workload=workload, pools=columns_of(pools), models=curves
    )


def due(asked: Asked) -> GeneratedWorkload:
    """Return jobs with deadlines on a fixed cluster of 48 V100s and 16 A100s, all reserved.

    Jobs take ten minutes to six hours at the requested size, an hour in the median. Four of five
    have a deadline: the submission plus 300 s plus 0.5 to 3 times the run time at the requested
    size. Some deadlines can therefore be met only on more or faster GPUs than requested (the traces
    of ElasticFlow have 0.5 to 1.5 times the run time). Weights 1, 2 and 4 are drawn independently.

    `load` is the V100-hours demanded at the requested sizes / the V100-hours that the cluster has
    while jobs are submitted. An A100 counts as many V100s as it is faster for this workload.
    """
    f, rng, jobs = asked.figures, asked.rng, asked.jobs
    pools = pools_of(asked)
    run_s, training = draw_demand(asked, pools=pools)
    window = training.demand / (training.count_v100s(pools) * asked.load)
    submitted = asked.draw_submissions(window)
    low, high = np.array(f["slack"])[rng.integers(0, len(f["slack"]), jobs)].T
    until = np.ceil(submitted + 300.0 + rng.uniform(low, high) * run_s)
    dated = rng.random(jobs) < 0.8
    wide = asked.draw_largest(training.requested, 16)
    columns: Columns = {
        "weight": draw.draw_keys(rng, by_size(f["weights"]), jobs),
        "deadline_s": np.where(dated, until, np.nan),
    }
    return training.workload(asked, window, submitted, wide, pools, columns)


SESSIONS, SESSION_S = 0.6, 900.0  # share of the jobs, and seconds that they stay in the mean


def interactive(asked: Asked) -> GeneratedWorkload:
    """Return sessions on one GPU each, and batch jobs that fill the cluster, to study headroom.

    Three of five jobs are sessions. They come at random times, stay for exponentially distributed
    seconds, and may not be moved. The others are elastic batch jobs with log-normal run times. Half
    of these give GPUs back at short notice. The other half may not be moved, so that a session
    waits until one of them ends, unless GPUs are kept for sessions. interactive.csv says how many
    sessions come and how long they stay.

    `load` is the GPU-hours demanded at the requested sizes / the GPU-hours of the cluster while
    jobs are submitted.
    """
    f, rng, jobs = asked.figures, asked.rng, asked.jobs
    pools = pools_of(asked)
    size = pools[0]["gpus"]
    session = np.arange(jobs) < round(SESSIONS * jobs)
    session = session[rng.permutation(jobs)]
    requested = np.where(session, 1, asked.draw_sizes())
    batch_s = draw.lognormal_in_strata(rng, f["median_s"], f["sigma"], jobs)
    stay_s = np.maximum(30.0, rng.exponential(SESSION_S, jobs))
    run_s = np.where(session, stay_s, np.minimum(batch_s, f["longest_s"]))
    training = draw_training(rng, requested, run_s)
    window = training.demand / (size * asked.load)
    gives = ~session & (rng.random(jobs) < 0.5)
    most = np.where(session, 1, asked.draw_largest(requested, 16))
    submitted = asked.draw_submissions(window)
    columns: Columns = {
        "weight": np.where(session, 4.0, 1.0),  # a person waits for a session
        "preemptible": gives,
        "interactive": session,
        "shrinkable": gives,
    }
    kept = {
        "pool": ["v100"],
        "sessions_per_hour": [float(session.sum()) / window * 3_600.0],
        "session_s": [float(training.gpu_s[session].mean()) if session.any() else SESSION_S],
    }
    most = np.minimum(most, size)
    return training.workload(asked, window, submitted, most, pools, columns, interactive=kept)
