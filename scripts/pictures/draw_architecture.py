"""Draw docs/pictures/architecture.svg: the packages in layers, and the imports between them.

    # needs the extra "test"
    python scripts/pictures/draw_architecture.py

Layers and imports are those that tests/house/test_house.py checks. An import is left out if a
longer chain of imports implies it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "pictures" / "architecture.svg"
sys.path += [str(ROOT / "tests" / "house"), str(ROOT / "tests" / "support" / "files")]

WIDTH, HEIGHT, GAP = 2.3, 0.62, 0.45  # size of a box, and gap between layers
Graph = dict[str, set[str]]


def import_graph() -> Graph:
    """Return the packages that each package imports."""
    from test_house import FLOORS, targets, unit

    graph: Graph = {name: set() for floor in FLOORS for name in floor}
    for name, target, _ in targets(ROOT):
        if unit(name) != unit(target):
            graph[unit(name)].add(unit(target))
    return graph


def without_implied(graph: Graph) -> Graph:
    """Return the graph without the edges that a longer path implies."""

    def reach(name: str) -> set[str]:
        return graph[name].union(*(reach(target) for target in graph[name]))

    return {
        name: {t for t in targets if not any(t in reach(o) for o in targets - {t})}
        for name, targets in graph.items()
    }


def main() -> None:
    """Draw the picture."""
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "architecture"  # the same bytes every time
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    import matplotlib.pyplot as plt
    from test_house import FLOORS

    place = {}
    for level, floor in enumerate(FLOORS):
        for i, name in enumerate(sorted(floor)):
            place[name] = (
                (i - (len(floor) - 1) / 2) * (WIDTH + 0.4),
                level * (HEIGHT + GAP),
            )
    figure, panel = plt.subplots(figsize=(9, 0.62 * len(FLOORS) + 0.4))
    for name, targets in without_implied(import_graph()).items():
        for target in sorted(targets):
            (x, y), (u, v) = place[name], place[target]
            panel.annotate(
                "",
                (u, v + HEIGHT / 2),
                (x, y - HEIGHT / 2),
                arrowprops={"arrowstyle": "->", "color": "0.55", "linewidth": 0.8},
            )
    for name, (x, y) in place.items():
        color = "#dbe9f6" if name == "formulations" else "#f4f1e8"
        box = plt.Rectangle(
            (x - WIDTH / 2, y - HEIGHT / 2),
            WIDTH,
            HEIGHT,
            facecolor=color,
            edgecolor="0.3",
            linewidth=0.8,
            zorder=3,
        )
        panel.add_patch(box)
        panel.text(x, y, name, ha="center", va="center", fontsize=8, zorder=4)
    for level in range(len(FLOORS)):
        panel.text(-5.6, level * (HEIGHT + GAP), str(level), va="center", fontsize=8, color="0.4")
    panel.set(xlim=(-5.8, 5.4), ylim=(-HEIGHT, (len(FLOORS) - 0.3) * (HEIGHT + GAP)))
    panel.axis("off")
    figure.savefig(OUT, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
