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
    begin_s = min([view.job.submitted_s, *(span.begin_s for span in view.spans)])
    end_s = view.job.finished_s if view.job.finished_s is not None else now_s
    length = max(end_s - begin_s, 1.0)
    most = max([1, *(span.gpus for span in view.spans)])
    pools = list(dict.fromkeys(span.pool for span in view.spans))

    def place(at_s: float) -> float:
        return min(WIDTH, max(0.0, (at_s - begin_s) / length * WIDTH))

    floor = HEIGHT - 20
    shapes = [f'<rect class="waits" x="0" y="{floor - 6:g}" width="{WIDTH:g}" height="6"/>']
    for span in view.spans:
        left = place(span.begin_s)
        right = place(now_s if span.end_s is None else span.end_s)
        height = (floor - 4) * span.gpus / most
        words = f"{span.gpus} x {span.pool}, {format_time(span.begin_s)} UTC, {span.phase}"
        shapes.append(
            f'<rect class="fill-{pools.index(span.pool) % 8}" x="{left:.1f}"'
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
    words = f"{view.job.job_id} held GPUs {len(view.spans)} times since {format_time(begin_s)} UTC"
    return Markup(
        f'<svg class="chart timeline" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
        f' aria-label="{escape(words)}">{"".join(shapes)}</svg>'
    )
