"""The first sentence of `solve` says what its plan does."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from commands import Output, call
from places import ROOT

SHIPPED = ROOT / "data" / "snapshots"


@pytest.mark.parametrize("words", ["demo --policy greedy", "medium --gap 1e-3"])
def test_the_answer_of_solve(words: str, capsys: Output) -> None:
    """Jobs that run before and after, those that each verb counts, GPUs, dollars and the gap are
    those of plan.json."""
    name, *options = words.split()
    command = " ".join(["solve", str(SHIPPED / name), *options])
    said = call(capsys, command)[1].splitlines()[0]
    plan = json.loads(call(capsys, f"{command} --format json")[1])
    jobs, pools = plan["jobs"], plan["pools"]
    ran = sum(job["previous_gpus"] > 0 for job in jobs)
    assert said.startswith(f"Now {ran} jobs run and {len(jobs) - ran} wait. This plan ")
    told = {verb: int(n) for verb, n in re.findall(r"(start|grow|move|shrink|pause)s (\d+)", said)}
    action = Counter(job["action"] for job in jobs)
    assert told == {verb: action[verb] for verb in {*action} - {"keep", "wait"}}
    runs = sum(job["gpus"] > 0 for job in jobs)
    gpus = f"{sum(p['used'] for p in pools)} of {sum(p['gpus'] for p in pools)} GPUs"
    assert f": {runs} jobs run on {gpus} for {plan['budget']['spent_per_hour']:,.2f} $/h" in said
    share = re.search(r"No plan is (?:more than ([\d.]+) % )?better", said)
    assert share and 0 <= float(share[1] or 0) / 100 - plan["gap"] <= 1e-4
