"""`allocator spot`: expected time and cost per cluster, the choice rules of published clusters,
faults, pictures.
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import Output, call
from places import ROOT

from allocator.domain.schema.spot_columns import CLUSTERS
from allocator.errors import Infeasible, InvalidInput
from allocator.io.tables.one_table import read_table, require_sound
from allocator.market.clusters import TransientCluster, clusters
from allocator.market.spot import choose_clusters, forecast_run, undominated_clusters

SHIPPED = ROOT / "data" / "spot" / "resnet32.csv"
HEAD = "cluster,gpu_type,workers,work_per_s,price_per_hour"


def known(text: str, folder: Path) -> tuple[TransientCluster, ...]:
    """The clusters of a file with this content."""
    path = folder / "clusters.csv"
    path.write_text(text, encoding="utf-8")
    table = read_table(path, CLUSTERS)
    done = clusters(table)
    require_sound(table)
    return done


def one(folder: Path, **columns: Any) -> TransientCluster:
    """One cluster of two servers of speed 1 at 1 $/h, with these columns."""
    row = {
        "cluster": "c",
        "gpu_type": "T",
        "workers": 2,
        "work_per_s": 1,
        "price_per_hour": 1,
        **columns,
    }
    return known(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n", folder)[0]


def test_nothing_is_lost(tmp_path: Path) -> None:
    """7,200 units at 2 per second and 100 s of start-up: 3,700 s for 2 $/h; a cap of 1 doubles
    the work's time.
    """
    plain = forecast_run(one(tmp_path, startup_s=100), 7200)
    found = (plain.seconds, plain.useful, plain.revocations, plain.bound, plain.dollars)
    assert found == pytest.approx((3700.0, 1.0, 0.0, False, 2 * 3700 / 3600))
    assert plain.dollars_per_work == plain.dollars / 7200
    capped = forecast_run(one(tmp_path, cap_per_s=1, servers_per_hour=3), 7200)
    assert (capped.seconds, capped.dollars, capped.bound) == (7200, 10.0, True)
    measured = forecast_run(one(tmp_path, measured_per_s=1.9), 7200)
    assert measured.seconds == pytest.approx(7200 / 1.9)
    saves = forecast_run(one(tmp_path, checkpoint_s=10, checkpoint_every_s=900), 7200)
    assert saves.seconds == 3630.0  # the fourth stretch ends with the job


def test_choices_that_do_not_exist(tmp_path: Path) -> None:
    """The smallest cost, deadline or quality that would do, and it does."""
    seen = [forecast_run(one(tmp_path, quality=0.9), 7200)]
    for rule, asked in (("cost", 0.0), ("deadline_s", 3599.0), ("quality", 0.95)):
        with pytest.raises(Infeasible) as error:
            choose_clusters(seen, **{rule: asked})
        needed = error.value.relaxations[0].needed
        assert choose_clusters(seen, **{rule: needed}).cheapest == 0
    lost = one(tmp_path, market="spot", revocations_per_hour=1e6, replace_s=600)
    never = forecast_run(lost, 7200)
    assert math.isinf(never.seconds)
    with pytest.raises(Infeasible, match="ever end"):
        choose_clusters([never])
    both = [never, *seen]
    assert choose_clusters(both).fastest == 1 and undominated_clusters(both) == [1]


def test_every_fault_at_once(tmp_path: Path, capsys: Output) -> None:
    """Spot above on-demand, an on-demand server that is revoked, two hazards, bad ages, rows
    that contradict.
    """
    path = tmp_path / "c.csv"
    path.write_text(
        "cluster,gpu_type,workers,work_per_s,price_per_hour,market,"
        "revocations_per_hour,hazard_by_age,"
        "cap_per_s\n"
        "a,T,1,1,1,on_demand,0.1,,\nb,T,1,1,2,spot,0.1,0:1,\n"
        "d,T,1,1,1,spot,,1:1,5\nd,U,1,1,1,spot,,,6\n",
        encoding="utf-8",
    )
    code, out, err = call(capsys, f"spot plan {path} --work 10")
    assert (code, out) == (3, "")
    told = {
        2: "not taken back",
        3: "above 1, the on-demand",
        3.5: "both revocations",
        4: "ascend from 0",
        5: "differs from that in line 4",
    }
    for said, (line, words) in zip(err.splitlines(), told.items(), strict=True):
        assert said.startswith(f"{path}:{int(line)}:") and words in said
    for row, says in (("a,T,1,1,$0.35", 'price_per_hour "$0.35" is not'), ("", "has no rows")):
        with pytest.raises(InvalidInput) as caught:
            known(f"{HEAD}\n{row}\n", tmp_path)
        assert says in str(caught.value)


def test_formats_and_files(tmp_path: Path, capsys: Output) -> None:
    """JSON, CSV and the files of --out say the same; a table for people; exit codes 4 and 2."""
    base, out = f"spot plan {SHIPPED} --work 64000 --cost", tmp_path / "out"
    code, text, err = call(capsys, f"{base} 1.2 --format json --out {out}")
    told = json.loads(text)
    assert code == 0 and told["choice"]["fastest within cost"] == "4 P100 spot"
    assert json.loads((out / "plan.json").read_text(encoding="utf-8")) == told
    picture = (out / "time-against-cost.svg").read_text(encoding="utf-8")
    assert picture.count("4 P100 spot") == 1
    text = call(capsys, f"{base} 1.2 --format csv")[1]
    assert text == (out / "plan.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["cluster"] for r in rows] == [c["cluster"] for c in told["clusters"]]
    assert rows[7]["best"] == "cheapest"
    text = call(capsys, f"{base} 1.2")[1]
    assert "bottleneck" in text and "fastest within cost" in text
    code, text, err = call(capsys, f"{base} 0")
    assert code == 4 and not text and "cost: 0 would have to be 0.8445" in err
    assert call(capsys, f"spot plan {SHIPPED} --work 0")[0] == 2
    assert call(capsys, f"spot plan {tmp_path / 'none.csv'} --work 1")[0] == 3
