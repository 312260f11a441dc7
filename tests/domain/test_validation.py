"""Every rule of validation, each with its exact message."""

from __future__ import annotations

import tomllib
from contextlib import nullcontext
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot
from text_tables import cases, cells, given, tables

from allocator.domain.rules.job_rules import find_cycles
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.errors import InvalidInput

RUNNING = cells("state=running pool=p0 gpus=2")
RATE = cells("gpu_type=A gpus=1 work_per_s=1")


def faults(*args: Any, **kwargs: Any) -> list[str]:
    """Faults of the snapshot that tests/support/rounds/builders.py makes of the arguments; [] if
    it is valid.
    """
    return faults_of(snapshot(*args, **kwargs))


def faults_of(snap: Snapshot) -> list[str]:
    try:
        validate(snap)
    except InvalidInput as error:
        return [str(f) for f in error.faults]
    return []


def warnings(*args: Any, **kwargs: Any) -> list[str]:
    """Warnings without those that say what plans do not do yet."""
    return [w for w in problem(*args, **kwargs).warnings if " yet" not in w]


@pytest.mark.parametrize(
    ("job", "fault"),
    cases("""
max_gpus=2 min_gpus=4 -> max_gpus 2 is below min_gpus 4
max_gpus=0 -> max_gpus 0 is below 1
max_gpus=2 gpu_fraction=0.5 -> gpu_fraction 0.5 is a share of one GPU, but max_gpus is 2
max_gpus=1 gpu_fraction=1 -> gpu_fraction 1 is not below 1; leave it empty for whole GPUs
max_gpus=1 gpu_fraction=0.5 gpus_per_pod=2 -> gpus_per_pod 2 has no multiple within min_gpus 1 to \
max_gpus 1
min_gpus=4 max_gpus=5 gpus_per_pod=3 -> gpus_per_pod 3 has no multiple within min_gpus 4 to \
max_gpus 5
requested_gpus=4 gpus_per_pod=3 -> requested_gpus 4 is no multiple of gpus_per_pod 3
sizes=2|6 gpus_per_pod=3 -> sizes "2|6" has one that is no multiple of gpus_per_pod 3
gpu_fraction=0 -> gpu_fraction 0 must be above 0
cpus_per_gpu=-1 -> cpus_per_gpu -1 is below 0
placement=same_rak -> placement "same_rak" is not known; did you mean "same_rack"?
placement=same_block -> placement "same_block" is not known; did you mean "same_rack"?
max_gpus=10000001 -> max_gpus 10000001 is above 10000000
max_gpus=2.5 -> max_gpus 2.5 is not a whole number
max_gpus=many -> max_gpus "many" is not a whole number
max_gpus= -> max_gpus is empty
remaining_work=0 -> remaining_work 0 must be above 0
remaining_work=nan -> remaining_work "nan" is not a finite number
remaining_work=1_000 -> remaining_work "1_000" is not a number
remaining_work=1e31 -> remaining_work 1e31 is too large, more than 1e+30 in size
remaining_work=1e-31 -> remaining_work 1e-31 is too small, closer to 0 than 1e-30
weight=-1 -> weight -1 must be above 0
total_work=999 -> total_work 999 is below remaining_work 1000
requested_gpus=9 -> requested_gpus 9 is outside min_gpus 1 to max_gpus 8
requested_gpus=1 min_gpus=2 -> requested_gpus 1 is outside min_gpus 2 to max_gpus 8
sizes=1|16 min_gpus=2 -> sizes "1|16" has none within min_gpus 2 to max_gpus 8
sizes=1|x -> sizes "1|x": "x" is not a whole number
sizes=0|1 -> sizes "0|1": 0 is below 1
sizes=1||2 -> sizes "1||2" has nothing between two bars, or at an end
gpu_types=B -> gpu_types "B" is neither in pools.csv nor in rates.csv
gpu_types=A|a -> gpu_types "a" is neither in pools.csv nor in rates.csv; did you mean "A"?
model=M -> model "M" has no row in rates.csv; did you mean "m"? If it is another model, set \
unknown_models = "assume"
state=runing -> state "runing" is not known; did you mean "running"?
state=? -> state "?" is not known (known: queued, running, paused, held)
preemptible=maybe -> preemptible "maybe" is neither true nor false
state=running pool= gpus=2 -> pool is empty, but state is running
state=running pool=p0 gpus= -> gpus is empty, but state is running
state=paused pool=p0 gpus=2 -> pool "p0" is given, but state is paused
state=running pool=p00 gpus=2 -> pool "p00" is not in pools.csv; did you mean "p0"?
gpus=2 -> gpus 2 is given, but state is queued
after=x|j0 -> after names the job itself
"""),
)
def test_faults_of_a_job(job: str, fault: str) -> None:
    """One wrong cell, one message: file, line, value, rule, job."""
    found = faults([cells(job)], [{}])
    assert f'jobs.csv:2: {fault} (job "j0")' in found
    # both pool and gpus are too many then
    assert len(found) == (2 if "paused" in job else 1)


@pytest.mark.parametrize(
    "job",
    """sizes=8|2|2 max_gpus=4
    state=running pool=p0 gpus=100
    after=gone|gone
    min_gpus=8
    gpu_types=A|B
    total_work=1000
    requested_gpus=8
    deadline_s=-5
    submitted_s=-1e9
    tenant=new""".splitlines(),
)
def test_odd_but_legal_jobs(job: str) -> None:
    """Sizes partly in range, more GPUs held than allowed or there, predecessors done, types of
    rates only ...
    """
    assert faults([cells(job)], [{}], [RATE, RATE | {"gpu_type": "B"}]) == []


def test_sizes_are_ascending_and_distinct() -> None:
    """8|2|2 is [2, 8]; two jobs with the same list share one."""
    p = problem([{"sizes": "8|2|2"}, {"sizes": "2|8"}])
    assert [s.tolist() for s in p.size_lists] == [[2, 8]] and p.jobs.sizes.tolist() == [0, 0]


N0, N1 = "node=n0 pool=p0 gpus=4", "node=n1 pool=p0 gpus=4"
SHARE = "sharing: model_a=m gpu_type=A gpus=1 slowdown_b=1"
LISTED = "tenants: tenant=red max_gpus=2; tenant=blue"
CURVE = "models: model=m gpu_type=A kind=power parameters="
ON_B = "jobs: state=running pool=p1 gpus=8 / pools: ; gpu_type=B / rates: gpu_type=A gpus=1 \
work_per_s=1; gpu_type=B gpus=1 work_per_s=1; gpu_type=B gpus=4 work_per_s=2"
# two on-demand pools with prices, and a spot pool whose price a case adds
DEAR = "pools: market=on_demand price_per_gpu_hour=2; market=on_demand price_per_gpu_hour=3; \
market=spot price_per_gpu_hour"


@pytest.mark.parametrize(
    ("more", "fault"),
    cases(f"""
prices: at_s=0 pool=p00 gpus=1 -> prices.csv:2: pool "p00" is not in pools.csv; did you mean "p0"?
prices: at_s=0 pool=p0; at_s=0.0 pool=p0 -> prices.csv:3: at_s 0.0, pool "p0" is already in line 2
nodes: node=n pool=zz gpus=1 -> nodes.csv:2: pool "zz" is not in pools.csv (node "n")
nodes: {N0}; {N1}; {N0} -> nodes.csv:4: node "n0" is already in line 2
nodes: {N0} cpus=-1 -> nodes.csv:2: cpus -1 is below 0 (node "n0")
nodes: {N0}; {N1} / placements: job_id=j0 node=n0 gpus=2 gpu=1 -> \
placements.csv:2: gpu 1 is given, but job "j0" has no gpu_fraction
placements: job_id=j0 node=n0 gpus=2 -> placements.csv: names nodes, but there is no nodes.csv
nodes: {N0}; {N1} / placements: job_id=j00 node=n0 gpus=2 -> \
placements.csv:2: job_id "j00" is not in jobs.csv; did you mean "j0"?
nodes: {N0}; {N1} / placements: job_id=j0 node=n00 gpus=2 -> \
placements.csv:2: node "n00" is not in nodes.csv; did you mean "n0"?
nodes: {N0}; {N1} / placements: job_id=j1 node=n0 gpus=2 -> \
placements.csv:2: job_id "j1" is not running (jobs.csv:3)
nodes: {N0}; {N1} / placements: job_id=j0 node=n0 gpus=1 -> \
placements.csv:2: job "j0" has 1 GPUs on nodes, but gpus 2 in jobs.csv:2
nodes: node=n0 pool=p1 gpus=4 / placements: job_id=j0 node=n0 gpus=2 -> \
placements.csv:2: node "n0" is in pool "p1", job "j0" runs in pool "p0"
tenants: tenant=t; tenant=t -> tenants.csv:3: tenant "t" is already in line 2
{SHARE} model_b=m slowdown_a=0.9 -> sharing.csv:2: slowdown_a 0.9 is below 1
pools: pool= -> pools.csv:2: pool is empty
rates: model= gpu_type=A gpus=1 work_per_s=1 -> rates.csv:2: model is empty
jobs: job_id=a after=b; job_id=b after=a -> \
jobs.csv:2: after makes a circle: "a" after "b" after "a" (job "a")
jobs: job_id=x after=a; job_id=a after=b; job_id=b after=c; job_id=c after=a -> \
jobs.csv:3: after makes a circle: "a" after "b" after "c" after "a" (job "a")
tenants: tenant=x amount=5 -> \
tenants.csv:2: amount needs until_s: an amount is spent until a date (tenant "x")
pools: market=spot hazard_by_age=0:0.1|0:0.2; -> pools.csv:2: hazard_by_age \
"0:0.1|0:0.2" is not HOURS:HAZARD|HOURS:HAZARD.. with hours that ascend from 0 and hazards per \
hour at least 0, such as "0:0.08|1:0.02" (pool "p0")
pools: market=spot hazard_by_age=0:0.1 revocations_per_gpu_hour=0.1; -> pools.csv:2: both \
revocations_per_gpu_hour and hazard_by_age are given; leave one empty (pool "p0")
finished: model= total_work=5 -> finished.csv:2: model is empty
finished: model=m total_work=0 -> finished.csv:2: total_work 0 must be above 0
finished: model=m total_work= -> finished.csv:2: total_work is empty
config: unknown_tenants=refuse / jobs: tenant=rde; tenant=blue / {LISTED} -> \
jobs.csv:2: tenant "rde" is not in tenants.csv; did you mean "red", which has no jobs? (job "j0")
{CURVE}{{"rate_1":1}} -> models.csv:2: parameters: exponent is missing; kind power needs it
{CURVE}{{"rate_1":-1,"exponent":1}} -> models.csv:2: parameters: rate_1 -1 is below 0
{CURVE}{{"rate_1":NaN,"exponent":1}} -> \
models.csv:2: parameters: rate_1 "nan" is not a finite number
{CURVE}{{"rate_1":"1","exponent":1}} -> \
models.csv:2: parameters: rate_1 "1" is text, not a number; write it without quotes
{CURVE}{{"rate_1":true,"exponent":1}} -> models.csv:2: parameters: rate_1 true is not a number
{CURVE}{{"rate_1":1,"exponent":[1]}} -> models.csv:2: parameters: exponent is a list, not a number
{CURVE}{{"rate_1":1,"exponent":1,"max_gpus":2.5}} -> \
models.csv:2: parameters: max_gpus 2.5 is not a whole number
{CURVE}{{"rate_1":1,"exponent":1,"min_gpus":8,"max_gpus":4}} -> \
models.csv:2: parameters: max_gpus 4 is below min_gpus 8
{CURVE}[1] -> models.csv:2: parameters "[1]" is not a JSON object such as {{"rate_1": 2.5}}
{CURVE}{{"a":1,"a":2}} -> \
models.csv:2: parameters "{{"a":1,"a":2}}" names a key twice
"""),
)
def test_faults_between_tables(more: str, fault: str) -> None:
    """A running and a queued job, two pools of type A."""
    assert faults(**given(more, jobs=[RUNNING, {}], pools=[{}, {}])) == [fault]


@pytest.mark.parametrize("text", ["{" * 5000, '{"a":' * 5000])
def test_parameters_without_an_end(text: str) -> None:
    """Bottomless JSON is one located fault."""
    curve = {"model": "m", "gpu_type": "A", "kind": "power", "parameters": text}
    (found,) = faults([{}], models=[curve])
    assert found.startswith("models.csv:2: parameters "), found


def test_missing_tables() -> None:
    """A missing file is named with what it holds."""
    assert faults_of(Snapshot("x", {}, {})) == [
        "jobs.csv: is missing; it holds every job that is queued, running or paused",
        "pools.csv: is missing; it holds identical GPUs that are bought and placed alike",
    ]


def test_circles_are_found_exactly_where_they_are() -> None:
    """Against the sorter of Python on 300 random graphs of five nodes; long chains need no deep
    stack.
    """
    rng = np.random.default_rng(0)
    for _ in range(300):
        edges = {i: np.flatnonzero(rng.random(5) < 0.25).tolist() for i in range(5)}
        found = list(find_cycles(edges))
        for circle in found:
            assert all(b in edges[a] for a, b in zip(circle, [*circle[1:], circle[0]], strict=True))
        with pytest.raises(CycleError) if found else nullcontext():
            TopologicalSorter(edges).prepare()
    chain: dict[int, list[int]] = {i: [i + 1] for i in range(50_000)}
    assert list(find_cycles(chain)) == []
    assert [len(c) for c in find_cycles(chain | {50_000: [0]})] == [50_001]


@pytest.mark.parametrize(
    ("more", "warning"),
    cases(f"""
config: now_s=5 / jobs: submitted_s=7 -> jobs.csv:2: submitted_s 7 is after now_s 5 (job "j0")
config: now=5 -> config.toml: "now" is not known and is ignored; did you mean "now_s"?
pools: gpus=8; gpu_type=AA / rates: gpu_type=A gpus=1 work_per_s=1 -> \
pools.csv:3: gpu_type "AA" has no rate of any model; did you mean "A"? (pool "p1")
pools: memory_gb=16; memory_gb=24 / rates: gpu_type=A gpus=1 work_per_s=1 memory_gb=32 -> \
rates.csv:2: memory_gb 32 is more than any "A" GPU of pools.csv has, 24
jobs: tenant=t / tenants: tenant=t max_gpus=2 guaranteed_gpus=3 -> \
tenants.csv:2: guaranteed_gpus 3 is above max_gpus 2 (tenant "t")
jobs: tenant=visoin / tenants: tenant=vision -> jobs.csv:2: tenant "visoin" is not in \
tenants.csv; did you mean "vision", which has no jobs? (job "j0")
nodes: {N0} state=drain; {N1} -> \
pools.csv:2: gpus 8, but its up nodes in nodes.csv have 4; 4 count (pool "p0")
pools: gpus=8; gpus=8 / nodes: {N0}; {N1} -> \
pools.csv:3: no node of it is in nodes.csv; gpus 8 count (pool "p1")
prices: at_s=-1 pool=p0 gpus=6 / nodes: {N0}; {N1} -> pools.csv:2: gpus 6 by prices.csv:2, \
but its up nodes in nodes.csv have 8; 8 count (pool "p0")
jobs: state=running pool=p0 gpus=6 / nodes: {N0}; {N1} / placements: job_id=j0 node=n0 gpus=6 -> \
nodes.csv:2: gpus 4, but 6 are placed there (node "n0")
pools: sharing=any / {SHARE} model_b=n slowdown_a=1 -> sharing.csv:2: model_b "n" has no rate
{SHARE} model_b=m slowdown_a=1; model_a=m model_b=m gpu_type=A gpus=1 slowdown_a=1 slowdown_b=1 -> \
sharing.csv: is checked, but no pool of pools.csv lets jobs share GPUs (column sharing)
pools: price=3 -> pools.csv:1: column "price" is not known and is ignored; did you mean \
"price_per_gpu_hour"?
jobs: tenant=t / tenants: tenant=t max_gpu=2 -> tenants.csv:1: column "max_gpu" is not known and \
is ignored; did you mean "max_gpus"?
jobs: tenant=rde / {LISTED} -> jobs.csv:2: tenant "rde" is not in tenants.csv, whose limits do \
not hold for it; did you mean "red", which has no jobs? (job "j0")
jobs: tenant=rde; tenant=red / {LISTED} -> jobs.csv:2: tenant "rde" is not in tenants.csv, whose \
limits do not hold for it; did you mean "red"? (job "j0")
jobs: submitted_s=1e9 deadline_s=24 -> jobs.csv:2: deadline_s 24 is not after submitted_s \
1e9; it is a time on the same clock, in seconds (job "j0")
jobs: deadline_s=24 remaining_work=10000 -> jobs.csv:2: deadline_s 24 is 24 s after submitted_s, \
but the work takes 1250 s at the best rate; deadline_s is a time on the clock of submitted_s, in \
seconds (job "j0")
{ON_B} -> jobs.csv:2: runs on 8 GPUs of type "B", where model "m" has no rate: it cannot stay \
there (job "j0")
jobs: state=running pool=p1 gpus=1 / pools: ; gpu_type=C / rates: gpu_type=A gpus=1 work_per_s=1; \
model=n gpu_type=C gpus=1 work_per_s=1 -> jobs.csv:2: runs on 1 GPUs of type "C", where model "m" \
has no rate: it cannot stay there (job "j0")
config: budget_per_hour=15 / pools: price_per_gpu_hour=2 -> pools.csv: the reserved GPUs cost 16 \
$/h together, more than budget_per_hour 15 of config.toml, which counts them: some of them stay idle
finished: model=m total_work=5 -> \
finished.csv: counts only where sizes is "unknown"; config.toml says "known"
config: sizes=unknown / finished: model=bret total_work=5 / jobs: model=bert / rates: model=bert \
gpu_type=A gpus=1 work_per_s=1 -> \
finished.csv:2: model "bret" has no rate and no job; did you mean "bert"?
{CURVE}{{"rate_1":1,"exponent":1,"max_gpu":8}} -> models.csv:2: parameters: "max_gpu" is not a \
parameter of kind power; did you mean "max_gpus"?
{DEAR}=2.5 -> pools.csv:4: spot price_per_gpu_hour 2.5 is above that of pool "p0", 2, which has \
"A" on demand (pools.csv:2) (pool "p2")
{DEAR}=1 / prices: at_s=60 pool=p2 price_per_gpu_hour=2.6; at_s=70 pool=p2 price_per_gpu_hour=1 \
-> prices.csv:2: pool "p2" is spot; its price_per_gpu_hour 2.6 is above that of pool "p0", 2, \
which has "A" on demand (pools.csv:2)
pools: price_per_gpu_hour= / prices: at_s=60 pool=p0 price_per_gpu_hour=1.5; at_s=50 pool=p0 \
price_per_gpu_hour=1.2 -> pools.csv:2: pool "p0" has no price_per_gpu_hour; it costs nothing until \
prices.csv:3 gives one at 50 (pool "p0")
prices: at_s=90 pool=p0 gpus= -> \
prices.csv:2: gives neither price_per_gpu_hour nor gpus; nothing changes
jobs: -> jobs.csv: has no jobs
jobs: / pools: -> pools.csv: has no pools; every job waits
"""),
)
def test_warnings(more: str, warning: str) -> None:
    """What is legal but looks like a mistake, once."""
    round_ = given(more, jobs=[{}])
    found = warnings(**round_)
    assert warning in found
    assert len(found) == (2 if round_.get("pools") == [] else 1), found


@pytest.mark.parametrize(
    "more",
    f"""jobs: tenant=new / tenants: tenant=vision; tenant=team-1
    jobs: tenant=team-2 / tenants: tenant=team-1
    jobs: tenant=blue / {LISTED}
    jobs: deadline_s=13
    jobs: deadline_s=24 remaining_work=10000 state=held submitted_s=-200
    {ON_B.replace("gpus=8", "gpus=3")}
    {ON_B} / {CURVE.replace("=A", "=B")}{{"rate_1":1,"exponent":1}}
    config: budget_per_hour=16 / pools: price_per_gpu_hour=2
    config: budget_per_hour=15 / pools: price_per_gpu_hour=2 market=on_demand
    config: sizes=unknown / finished: model=m total_work=5
    {DEAR}=2; gpu_type=B market=spot price_per_gpu_hour=9 / prices: at_s=60 pool=p2 gpus=0
    pools: price_per_gpu_hour= / prices: at_s=0 pool=p0 price_per_gpu_hour=1.5""".splitlines(),
)
def test_no_noise(more: str) -> None:
    """What comes near to a mistake and is none: numbered tenants, sizes between measured ones."""
    assert warnings(**given(more, jobs=[{}])) == []


def test_many_alike_warnings_are_summed_up() -> None:
    """Of 100 jobs from the future, at as many times, five are listed; at one time they are one
    line.
    """
    found = warnings([{"submitted_s": 9 + i} for i in range(100)], config={"now_s": 5})
    assert found[0] == 'jobs.csv:2: submitted_s 9 is after now_s 5 (job "j0")' and len(found) == 6
    assert found[5] == "jobs.csv:7: and 95 more like it: jobs submitted after now_s"
    assert warnings([{"submitted_s": 9}] * 100, config={"now_s": 5}) == [
        'jobs.csv:2-101: submitted_s 9 is after now_s 5 (100 jobs: "j0", "j1", "j2" ...)'
    ]


def test_prices_in_force() -> None:
    """The latest value not after now_s counts, column by column, whatever the order of the rows."""
    prices = tables("""prices: at_s=20 pool=p0 gpus=1; at_s=10 pool=p0 gpus=5 price_per_gpu_hour=2;
        at_s=5 pool=p0 price_per_gpu_hour=3; at_s=15 pool=p0 gpus=0;
        at_s=15.5 pool=p1 price_per_gpu_hour=9""")
    pools = problem([{}], [{}, {"price_per_gpu_hour": 1}], config={"now_s": 15}, **prices).pools
    assert pools.gpus.tolist() == [0, 8] and pools.price_per_gpu_hour.tolist() == [2, 1]


def test_now_and_tenants_by_default() -> None:
    """now_s is the latest submission; tenants named by jobs follow those listed, without limits."""
    jobs = cells("submitted_s=3 tenant=b"), cells("submitted_s=8"), cells("submitted_s=1 tenant=a")
    p = problem(jobs, tenants=[{"tenant": "a", "max_gpus": 4}])
    assert (p.now_s, p.tenants.tenant) == (8, ("a", "b", "default"))
    assert p.jobs.tenant.tolist() == [1, 2, 0] and p.tenants.max_gpus.tolist() == [4, *[np.inf] * 2]
    assert problem().now_s == 0


@pytest.mark.parametrize(
    ("text", "words"),
    cases("""
now_s = nan -> now_s "nan" is not a finite number
interval_s = 0 -> interval_s 0 must be above 0
interval_s = true -> interval_s true is not a number
budget_per_hour = -1 -> budget_per_hour -1 is below 0
max_changes = 1.5 -> max_changes 1.5 is not a whole number
max_changes = [1] -> max_changes is a list
objective = 3 -> objective is a number, not text
objective = "" -> objective is empty
restart_s = {a = 1} -> restart_s is a table
longrun.average_per_hour = 0 -> [longrun] average_per_hour 0 must be above 0
longrun = {average_per_hour = 5, amount = 5, until_s = 9} -> \
[longrun] average_per_hour and amount are both given
longrun.amount = 5 -> [longrun] amount needs until_s
longrun.until_s = 5 -> [longrun] until_s needs amount
longrun = {amount = "12 $", until_s = 5} -> [longrun] amount
solver = 3 -> solver must be a table, [solver]
unknown_tenants = "refuse" -> jobs.csv:2: tenant "default" is not in tenants.csv (job "j0")
unknown_tenants = "refsue" -> unknown_tenants "refsue" is not known; did you mean "refuse"?
"""),
)
def test_faults_of_the_config(text: str, words: str) -> None:
    """Values of the wrong type or range, and what they forbid."""
    (found,) = faults([{}], config=tomllib.loads(text))
    assert found.removeprefix("config.toml: ").startswith(words)


@pytest.mark.parametrize("value", [None, 10**400])
def test_settings_that_no_file_holds(value: object) -> None:
    """From Python: nothing, and a number that no float holds."""
    (found,) = faults([{}], config={"now_s": value})
    assert found.startswith("config.toml: now_s ")


def test_messages_stay_on_one_line_and_short() -> None:
    """Any letter is legal. Control characters are shown as they are written in Python, long values
    are cut, whatever a cell holds.
    """
    assert faults([{"job_id": "jöb 7 ☃"}]) == []
    found = faults([{"job_id": "a\nb" + "c" * 500, "state": "\u202e" + "x" * 500}])
    assert len(found) == 2 and all(len(f) < 300 and f.isprintable() for f in found), found
