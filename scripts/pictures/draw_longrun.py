"""Draw docs/pictures/longrun.svg from the results of scripts/studies/money/measure_longrun.py.

python scripts/studies/money/measure_longrun.py --seeds 1 --out longrun --cases "long-run,hard cap"
# needs the extra "plots" (matplotlib)
python scripts/pictures/draw_longrun.py longrun
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "longrun.svg"
CASES = {"long-run": "tab:blue", "hard cap": "tab:orange"}
NAMES, STEP = ("bursty", "diurnal"), 6  # hours of one step of the curves


def main() -> None:
    """Draw spending above and savings below, with one column per generator."""
    folder = Path(sys.argv[1])
    found = [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]
    plt.rcParams |= {"svg.hashsalt": "longrun", "font.size": 8}
    figure, axes = plt.subplots(2, len(NAMES), figsize=(9, 4.4), sharex=True, layout="constrained")
    for column, name in enumerate(NAMES):
        top, bottom = axes[0, column], axes[1, column]
        for case, colour in CASES.items():
            row = next(
                (
                    r
                    for r in found
                    if r["workload"] == name
                    and r["seed"] == 0
                    and r["case"] == case
                    and "series" in r
                ),
                None,
            )
            if row is None:
                sys.exit(
                    f'{folder} has no result of "{case}" on {name}, seed 0: run'
                    " scripts/studies/money/measure_longrun.py first"
                )
            hourly = np.array(row["series"]["hourly"])
            day = np.arange(len(hourly)) / 24
            top.step(
                day[::STEP],
                hourly[: len(hourly) // STEP * STEP].reshape(-1, STEP).mean(axis=1),
                where="post",
                color=colour,
                lw=1,
                label=f"{case}: mean completion {row['jct_h']:.2f} h",
            )
            bottom.plot(day, np.cumsum(1 - hourly), color=colour, lw=1)
        for ax in (top, bottom):
            ax.axhline(1 if ax is top else 0, color="grey", lw=0.6)
        top.set_title(name)
        top.legend(frameon=False)
        bottom.set_xlabel("day")
    axes[0, 0].set_ylabel("dollars per hour / budget")
    axes[1, 0].set_ylabel("saved, hours of the budget")
    figure.savefig(PICTURE, metadata={"Date": None})
    print(PICTURE)


if __name__ == "__main__":
    main()
