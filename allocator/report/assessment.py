"""Pages of what would change: a history under other policies, and a cluster that was watched."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from allocator.objects import Record
from allocator.report.chart import COLOURS, FAINT, INK, Axis, Chart, Mark, Panel, steps
from allocator.report.page import LEAD, TEXT, Picture, Table, write_page

SHADOW = (
    "Value of each decision, and the bound of every plan, less the value of what the cluster did."
    " GPUs in use, and idle ones that waiting jobs could have used. Nothing is drawn where nothing"
    " was seen."
)


class Answer(NamedTuple):
    """An answer in sentences, and its table. The last column has the assumptions of each row."""

    sentences: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_assessment(assessment: Record, answer: Answer, out: Path) -> Path:
    """Write the page of an assessment (bench/assess) into a folder; return the path of the page.

    The folder is made if it does not exist.
    """
    x = [0.0, *assessment["use"]["until_s"]]
    marks = [
        Mark("line", *steps(x, used), name, COLOURS[i % 8], is_dashed=i % 2 > 0)
        for i, (name, used) in enumerate(assessment["use"]["gpus"].items())
    ]
    limit = [(assessment["gpus"], "all there is at the start")]
    panel = Panel("GPUs in use", marks, Axis(kind="time"), Axis(kind="whole"), limit)
    caption = "GPUs in use between the first and the last submission."
    picture = Picture("use", "GPUs in use", caption, Chart("GPUs in use", [panel]))
    title = f"What would change: {assessment['history']}"
    return _write(out / "report.html", title, answer, picture)


def write_shadow(summary: Record, answer: Answer, out: Path) -> Path:
    """Write the page of a summary of recorded rounds (bench/shadow) to an HTML file."""
    names = ("at_s", "hours", "regret_bound", "regret", "gpus", "used", "usable")
    seen = np.array([[look.get(name, np.nan) for name in names] for look in summary["looks"]]).T
    begin = seen[0] - summary["from_s"]
    # a round stands until its end, and nothing is drawn after it
    x = np.stack([begin, begin + 3600.0 * seen[1], begin + 3600.0 * seen[1]]).T.reshape(-1)
    bound, regret, gpus, used, usable = np.repeat(seen[2:], 3, axis=1)
    line = regret.copy()
    line[2::3] = np.nan
    blue, orange, green = COLOURS[0], COLOURS[1], COLOURS[2]
    value = [
        Mark("area", x, bound, "up to bound", orange, regret, is_faint=True),
        Mark("line", x, line, "regret", blue),
    ]
    use = [
        Mark("area", x, used, "in use", FAINT, np.zeros(len(x)), is_faint=True),
        Mark("area", x, used + usable, "idle, could be used", green, used),
        Mark("line", x, gpus, "all there is", INK),
    ]
    since = Axis("since the first look", "time", high=summary["to_s"] - summary["from_s"])
    panels = [
        Panel("value above the cluster's", value, since),
        Panel("GPUs", use, since, Axis(kind="whole")),
    ]
    picture = Picture("shadow", "Round by round", SHADOW, Chart("round by round", panels))
    return _write(out, f"Beside {summary['cluster']}", answer, picture)


def _write(out: Path, title: str, answer: Answer, picture: Picture) -> Path:
    words = [(TEXT if i else LEAD).format(sentence) for i, sentence in enumerate(answer.sentences)]
    last = len(answer.columns) - 1
    table = Table("The answer in numbers", answer.columns, answer.rows, [last])
    return write_page(out, title, [*words, table, picture])
