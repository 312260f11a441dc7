"""The history of a job as a picture: when it held how many GPUs of which pool, and when none."""

from __future__ import annotations

from markupsafe import Markup, escape

from allocator.controller.reporting.status import format_time
from allocator.server.views.job import JobView

WIDTH = 560.0
HEIGHT = 90.0
LEAST = 1.5
TICKS = 4


def draw_timeline(view: JobView, now_s: float) -> Markup:
    """Draw the allocations of a job from its submission to its end, or to now."""
    begin_s: float = min([view.job.submitted_s, *(one["ordered_s"] for one in view.allocations)])
    end_s = view.job.finished_s if view.job.finished_s is not None else now_s
    length = max(end_s - begin_s, 1.0)
    most = max([1, *(one["gpus"] for one in view.allocations)])
    pools = list(dict.fromkeys(one["pool"] for one in view.allocations))

    def place(at_s: float) -> float:
        return min(WIDTH, max(0.0, (at_s - begin_s) / length * WIDTH))

    floor = HEIGHT - 20
    shapes = [f'<rect class="waits" x="0" y="{floor - 6:g}" width="{WIDTH:g}" height="6"/>']
    for one in view.allocations:
        left = place(one["ordered_s"])
        right = place(now_s if one["ended_s"] is None else one["ended_s"])
        height = (floor - 4) * one["gpus"] / most
        begun = format_time(one["ordered_s"])
        words = f"{one['gpus']} x {one['pool']}, {begun} UTC, {one['phase']}"
        shapes.append(
            f'<rect class="fill-{pools.index(one["pool"]) % 8}" x="{left:.1f}"'
            f' y="{floor - height:.1f}" width="{max(LEAST, right - left):.1f}"'
            f' height="{height:.1f}"><title>{escape(words)}</title></rect>'
        )
    for k in range(TICKS + 1):
        anchor = "start" if k == 0 else "end" if k == TICKS else "middle"
        label = format_time(begin_s + length * k / TICKS)[5:16]
        shapes.append(
            f'<text x="{WIDTH * k / TICKS:g}" y="{HEIGHT - 5:g}" text-anchor="{anchor}">'
            f"{label}</text>"
        )
    times = f"{len(view.allocations)} times since {format_time(begin_s)} UTC"
    words = f"{view.job.job_id} held GPUs {times}"
    return Markup(
        f'<svg class="chart timeline" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
        f' aria-label="{escape(words)}">{"".join(shapes)}</svg>'
    )
