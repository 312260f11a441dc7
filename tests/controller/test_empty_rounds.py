"""A round that is decided without jobs is read like any other."""

from __future__ import annotations

import pytest
from commands import Output, call
from controller_rigs import Rig

from allocator.controller.reporting import journal
from allocator.domain.problem import Problem
from allocator.queue import round_journal


@pytest.fixture
def emptied(rig: Rig) -> Rig:
    """A queue whose only job was cancelled after its round was due and before it was observed."""
    rig.submit("last")
    observe = rig.controller.cluster.observe

    def observe_after_cancel() -> Problem:
        rig.queue.cancel("last")
        return observe()

    rig.controller.cluster.observe = observe_after_cancel  # type: ignore[method-assign]
    rig.controller.step()
    return rig


def test_plan_without_jobs_is_kept_and_read(emptied: Rig) -> None:
    """Packed and read again: no jobs, the same fields, and the same text as plan.json."""
    with emptied.queue.store.read() as connection:
        content = round_journal.read(connection, 1).plan
    assert content is not None
    plan = journal.read_plan(content)
    assert plan["jobs"] == [] and plan["objective_value"] == 0.0
    assert '"jobs": []' in journal.read_plan_text(content)


def test_queue_goes_on_after_a_round_without_jobs(emptied: Rig, capsys: Output) -> None:
    """`queue show`, `status` and `history` answer; a new controller decides the next round."""
    emptied.submit("next")
    for words in ("queue show {} next", "status {}", "history {}", "report {}"):
        code, _, err = call(capsys, words.format(emptied.path))
        assert (code, err) == (0, "")
    emptied.clock.sleep(60.0)
    emptied.renew()
    emptied.steps(600.0)
    assert emptied.queue.job("next").state == "done"
