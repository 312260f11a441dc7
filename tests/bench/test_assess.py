"""The assessment of a history (`allocator assess`): calibration, cases, intervals, words, page."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Output, call
from worlds import workload

import allocator
from allocator.bench.assess import outcomes
from allocator.bench.assess.assessing import PRESENT, RECORDED, RIGID, Question, assess
from allocator.bench.assess.settled import UnsettledCluster
from allocator.bench.assess.variants import make_elastic, make_rigid, scale_gpus
from allocator.cli.measure.assess import LONGER, sentences
from allocator.cli.output import SCHEMA_VERSION
from allocator.domain.workload import RecordedTimes, Workload
from allocator.errors import UsageError
from allocator.io.plans import dumps
from allocator.io.workloads import write_workload
from allocator.performance.table import RateTable

HOUR = 3600.0
ASSUMED = "the log does not say what jobs could use"


def site(jobs: int = 24, gap_s: float = 9000.0, **late_s: float) -> Workload:
    """Jobs of 1, 2 and 4 GPUs over some days, recorded as a backfill scheduler ran them; each start
    and end so much later as `late_s` says.
    """
    rng = np.random.default_rng(7)
    rows_ = [
        {
            "submitted_s": round(k * gap_s),
            "total_work": int(g) * int(s),
            **dict.fromkeys(("requested_gpus", "min_gpus", "max_gpus"), int(g)),
        }
        for k, (g, s) in enumerate(
            zip(rng.choice([1, 2, 4], jobs), rng.integers(2000, 20_000, jobs), strict=True)
        )
    ]
    made = workload(rows_, 4, config={"interval_s": 7200})
    options = allocator.SimulationOptions(react_s=1.0, prove_every=0)
    ran = allocator.simulate(made, policy="easy", options=options).tables["jobs"]
    times = [np.asarray(ran[c]) + late_s.get(c, 0.0) for c in ("started_s", "finished_s")]
    return dataclasses.replace(made, recorded=RecordedTimes(*times), assumed=ASSUMED)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The assessment of a site that runs `easy` itself."""
    return assess(site(), Question(shares=(0.5,)))


@pytest.mark.nightly
def test_a_record_of_easy_itself_is_met_exactly(found: dict[str, Any]) -> None:
    """Every figure of the record is that of the simulation, and forecasts are believed."""
    seen = found["calibration"]
    assert seen["believed"] and seen["waiting_percent"] == 0 and abs(seen["use_points"]) < 1e-9
    recorded, simulated = (case["figures"] for case in found["cases"][:2])
    assert found["cases"][0]["name"] == RECORDED and recorded["waiting_s_mean"][0] > 0
    assert all(recorded[key] == pytest.approx(simulated[key]) for key in simulated)
    assert sentences(found)[1].startswith("Forecasts are to be believed: mean waiting is ")


@pytest.mark.nightly
def test_rounds_that_could_change_nothing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is the same to the last digit as with all rounds, of which fewer are decided."""
    rounds: list[dict[str, int]] = []
    documents = []
    outcome_of = outcomes.outcome_of

    def count(made: Workload, run: allocator.Simulation) -> outcomes.Outcome:
        rounds[-1][run.policy] = run.metrics["rounds"]
        return outcome_of(made, run)

    monkeypatch.setattr(outcomes, "outcome_of", count)
    for is_plain in (UnsettledCluster._is_plain, lambda cluster: False):
        monkeypatch.setattr(UnsettledCluster, "_is_plain", is_plain)
        rounds.append({})
        documents.append(dumps(assess(site(12), Question())))
    assert documents[0] == documents[1]
    assert all(rounds[0][policy] < rounds[1][policy] for policy in ("easy", "mip"))


def test_another_scheduler_is_not_believed() -> None:
    """Each job started an hour later than `easy` would start it. The sentence names waiting, and
    the answer does not claim anything.
    """
    late = assess(site(8, gap_s=25_000.0, started_s=HOUR, finished_s=HOUR), Question())
    seen = late["calibration"]
    wait = seen["simulated"]["waiting_s_mean"]
    assert seen["waiting_percent"] == pytest.approx(-100 * HOUR / (wait + HOUR))
    assert not seen["believed"] and seen["largest"] == "waiting"
    answer, belief = sentences(late)[:2]
    assert answer.startswith("Not to be believed as yet: ")
    assert belief.startswith("Forecasts are not to be believed: mean waiting is ")
    assert re.search(r"the most in day \d; 10 % of waiting and 2 points of use are allowed", belief)
    assert belief.endswith(LONGER)


def test_cases_are_compared_with_the_present(found: dict[str, Any]) -> None:
    """Changes follow from the figures; rigid jobs of 4 GPUs need all 4; elastic jobs
    have a range over both curves, and its ends differ.
    """
    by = {case["name"]: case for case in found["cases"]}
    present, rigid = by[PRESENT], by[RIGID]
    mean = "waiting_s_mean"
    percent = 100 * (rigid["figures"][mean][0] / present["figures"][mean][0] - 1)
    assert rigid["change_percent"]["waiting_s"]["percent"] == pytest.approx([percent] * 2)
    assert rigid["fewest_gpus"][0] >= 4
    elastic = by["this allocator, 50 % elastic"]
    rigid_only, said = (
        set(a["assuming"]) - set(b["assuming"]) for a, b in ((rigid, elastic), (elastic, rigid))
    )
    assert rigid_only == {"each job at the GPUs it asked for, and never stopped"} and len(said) == 3
    low, high = elastic["figures"]["completion_s_mean"]
    assert low < high < present["figures"]["completion_s_mean"][0]
    assert all(low <= high for low, high in elastic["figures"].values())
    assert found["resampled"] == "day"
    low, high = elastic["change_percent"]["completion_s"]["interval"]
    assert low < elastic["change_percent"]["completion_s"]["percent"][0] < high


def test_fewer_gpus_than_there_are() -> None:
    """Single-GPU jobs one after the other keep one GPU busy: one of eight is enough, and with it
    nobody waits; nothing is left out on the way.
    """
    rows_ = [{"submitted_s": 1000 * k, "total_work": 900} for k in range(10)]
    few = assess(workload(rows_, 8), Question())
    assert {c["name"]: c.get("fewest_gpus") for c in few["cases"]} == {PRESENT: None, RIGID: [1, 1]}
    assert "and 1 of the 8 GPUs would be enough" in sentences(few)[0]


def test_intervals_by_hand() -> None:
    """Two days: waiting halves on the one, and stays on the other. Resampled means lie between, and
    their ends are the days alone. A single day has no interval.
    """
    new, old = np.array([5.0, 10.0]), np.array([10.0, 10.0])
    assert outcomes.change(new, old, np.array([0, 3])) == (-25.0, -50.0, 0.0)
    percent, *ends = outcomes.change(new, old, np.array([0, 0]))
    assert percent == -25.0 and np.isnan(ends).all()
    assert np.isnan(outcomes.change(new, np.zeros(2), np.array([0, 1]))).all()


def test_elastic_jobs_by_hand() -> None:
    """A job of 4 GPUs at half to twice that: sizes 2, 4, 8; as fast as before at 4, and by the
    curve elsewhere; others stay as they were. More elastic jobs include the fewer.
    """
    rigid = make_rigid(workload([{"requested_gpus": 4, "max_gpus": 8}] * 40, 16))
    assert not rigid.problem.jobs.preemptible.any() and (rigid.problem.jobs.min_gpus == 4).all()
    few, many = (make_elastic(rigid, s, (0.5, 2.0), 0.1, seed=3).problem for s in (0.3, 0.6))
    drawn = few.jobs.min_gpus == 2
    assert 0 < drawn.sum() < (many.jobs.min_gpus == 2).sum() < 40
    assert (many.jobs.min_gpus == 2)[drawn].all()
    assert (few.jobs.max_gpus == np.where(drawn, 8, 4)).all()
    assert (few.jobs.preemptible == drawn).all()
    model, sizes = few.jobs.model[np.flatnonzero(drawn)[:1]], np.array([2, 4, 8])
    rate, _ = RateTable.of(few).rate(np.repeat(model, 3), np.zeros(3, dtype=int), sizes)
    assert rate == pytest.approx(4 * 1.3 / 4 * sizes / (1 + 0.1 * (sizes - 1)))


def test_fewer_gpus_on_nodes_and_over_time() -> None:
    """Half of 3 nodes is one node, and half of 5 GPUs are 2; a node that is gone does not come
    back.
    """
    made = workload(
        [{}],
        pools=[{"pool": "n", "gpus": 24}, {"pool": "p", "gpus": 5}],
        nodes=[{"node": f"n{i}", "pool": "n", "gpus": 8} for i in range(3)],
    )
    made = dataclasses.replace(
        made,
        node_events=type(made.node_events)(
            np.array([5.0, 6.0]), np.array([0, 2]), np.array([2, 0]), np.full(2, np.inf)
        ),
    )
    half = scale_gpus(made, 0.5)
    assert half.problem.pools.gpus.tolist() == [8, 2]
    assert half.problem.nodes.state.tolist() == [0, 2, 2]
    assert half.node_events.node.tolist() == [0]


def test_every_figure_of_the_page_has_its_assumptions(tmp_path: Path, capsys: Output) -> None:
    """In the page each row with figures ends with its assumptions; in a terminal a line of each
    case has them; in JSON each case. What the history itself assumes is in all of them.
    """
    history = write_workload(tmp_path / "history", site(4))
    code, out, err = call(
        capsys, "assess", history, "--elastic-share", "0.5", "--out", tmp_path / "d"
    )
    assert code == 0 and f"assumed: {ASSUMED}" in err
    found = json.loads((tmp_path / "d" / "assessment.json").read_text())
    page = (tmp_path / "d" / "report.html").read_text()
    lines = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page, re.S)
    names = [case["name"] for case in found["cases"]]
    assert [name for name, _ in lines] == names == [RECORDED, PRESENT, RIGID, names[3]]
    lead = re.findall(r"<p[^>]*>([^<]*)</p>", page)
    assert any(ASSUMED in said for said in lead[:3]) and ASSUMED in out.split("\n\n")[0]
    for (_, line), case in zip(lines, found["cases"], strict=True):
        assert re.search(r"\d", line) and ASSUMED in case["assuming"][-1]
        words = "; ".join(case["assuming"])
        assert re.findall(r'class="why">(.*?)</td>', line, re.S) == [words]
        assert f"{case['name']} assumes: {words}\n" in out
    code, out, err = call(capsys, "assess", history, "--elastic-share", "0.5", "--json", "--quiet")
    assert code == 0 and json.loads(out) == {"schema_version": SCHEMA_VERSION, **found}


def test_bad_input(tmp_path: Path, capsys: Output) -> None:
    """A history without GPUs, or none; options out of range."""
    with pytest.raises(UsageError, match="nothing to assess"):
        assess(workload([{}], 0), Question())
    assert call(capsys, "assess", tmp_path / "nothing")[0] == 3
    for option, word in (
        ("--elastic-share", "1.5"),
        ("--elastic-range", "2..3"),
        ("--elastic-curves", "-1"),
    ):
        code, _, err = call(capsys, "assess", "data/examples/history", f"{option}={word}")
        assert code == 2 and option in err
