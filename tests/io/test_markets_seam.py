"""What every format of spot markets must do: each registered one goes through the same checks,
on made up samples.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from cases.markets import SAMPLES
from examples import series
from places import ROOT
from text_tables import cases

from allocator.bench.workloads import generate
from allocator.cli.main import run
from allocator.domain.problem import Market as Kind
from allocator.errors import AllocatorError, InvalidInput, UsageError
from allocator.io.formats import MARKETS, choose_format
from allocator.io.markets.base import MarketOptions as Options, parse_dollars
from allocator.io.markets.run import (
    TimeWindow,
    import_markets,
    onto,
    write_market,
)
from allocator.io.workloads import read_workload

EXPECTED = cases("""
spot-counts -> east-a-v100x4 -> 0:4 120:0 180:8 300:0 -> none
spot-events -> p9 -> 0:2 90:1 120:2 -> none
spot-held -> z -> 0:8 60:5 120:6 -> none
spot-prices -> e-1a-p3.8xlarge -> none -> 0:0.9 3600:1
spot-log -> e-1b-v100x4 -> 0:4 1200:0 -> none
catalog -> r-a-a100x2 -> none -> 0:1.5
""")  # format, pool, GPUs over time, prices over time
every_format = pytest.mark.parametrize("name", MARKETS)


def sample(name: str, folder: Path) -> Path:
    file, text = SAMPLES[name]
    (folder / file).write_text(text, encoding="utf-8")
    return folder / file


def steps(at_s: Iterable[float], values: Iterable[float]) -> str:
    """What is from when, in words."""
    return " ".join(f"{t:g}:{n:g}" for t, n in zip(at_s, values, strict=True)) or "none"


@pytest.mark.parametrize(("name", "pool", "gpus", "prices"), EXPECTED)
def test_documented_recognised_and_read_by_hand(
    name: str, pool: str, gpus: str, prices: str, tmp_path: Path
) -> None:
    """A section in docs/traces.md; `auto` finds it; the sample gives exactly these steps, gzip
    or plain; capacity.csv and prices.csv are written where there are steps.
    """
    assert {name for name, *_ in EXPECTED} == {*MARKETS}
    assert f"## {name}" in (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    source = sample(name, tmp_path)
    assert choose_format("auto", source, MARKETS) == name
    for _ in range(2):
        market = import_markets("auto", [source], Options())
        (series,) = market.series
        assert (series.pool, steps(*series.gpus)) == (pool, gpus)
        assert steps(*series.price) == prices
        source.write_bytes(gzip.compress(SAMPLES[name][1].encode()))
    folder = write_market(market, tmp_path / "out")
    head = "pool,gpu_type,gpus,market,price_per_gpu_hour,region\n"
    assert (folder / "pools.csv").read_text().startswith(head)
    assert (folder / "capacity.csv").exists() == (" " in gpus)
    assert (folder / "prices.csv").exists() == (" " in prices)


@every_format
@pytest.mark.parametrize(
    "content",
    [None, b"", b"{}", b"x,y\n1,2\n", b"\0\1", b"[1, 2]", gzip.compress(b"abc", mtime=0)[:12]],
)
def test_wrong_files_are_faults_that_name_the_file(
    name: str, content: bytes | None, tmp_path: Path
) -> None:
    """Absent, empty, of another form, damaged: InvalidInput with the path, never a crash; asked
    whether it is this format, a reason each time, also of a folder.
    """
    source = sample(name, tmp_path)
    source.unlink()
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        import_markets(name, [source], Options())
    assert all(str(source) in fault.file for fault in caught.value.faults)
    recognise = MARKETS[name].load().recognise
    assert recognise(source) and recognise(tmp_path)


@every_format
@pytest.mark.parametrize("nonsense", series(["x", "", "-1", "1e999", "nan", "$3", "true"], 1))
def test_any_part_may_be_wrong(name: str, nonsense: str, tmp_path: Path) -> None:
    """Whatever token is replaced by nonsense: read, or an error of ours."""
    source, text = sample(name, tmp_path), SAMPLES[name][1]
    for token in list(re.finditer(r"[A-Za-z0-9.:$-]+", text))[:120]:
        changed = text[: token.start()] + nonsense + text[token.end() :]
        source.write_text(changed, encoding="utf-8")
        try:
            import_markets(name, [source], Options())
        except AllocatorError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("$0.9", "write 0.9"),
        ("1,234.5", "write 1234.5"),
        ("0.9 USD", "write 0.9"),
        ("-1", "above 0"),
        ("0", "above 0"),
        *((text, "plain number") for text in ("nan", "", None, True)),
    ],
)
def test_prices_are_plain_dollars(text: object, why: str) -> None:
    """A currency sign, a thousands separator, nothing, a negative number: told apart."""
    with pytest.raises(ValueError, match=why):
        parse_dollars(text)


def test_spot_above_on_demand_is_a_warning(tmp_path: Path) -> None:
    """p3 is 3.06 per GPU-hour on demand; 16 dollars for 4 GPUs are too much; --on-demand 5 says
    otherwise.
    """
    source = sample("spot-prices", tmp_path)
    source.write_text(SAMPLES["spot-prices"][1].replace('"4.0', '"16.0'), encoding="utf-8")
    (warning,) = import_markets("spot-prices", [source], Options()).warnings
    assert "1 of 2 spot prices are not below the price on demand, 3.06" in warning
    assert import_markets("spot-prices", [source], Options(on_demand=5.0)).warnings == ()


def test_up_is_one(tmp_path: Path) -> None:
    """Eight GPUs of a zone had more often than one: the file may be negated, and a warning asks."""
    for gpus, data in ((1, "[0, 0, 0, 1]"), (8, "[1, 1, 1, 0]")):
        big = tmp_path / f"z_v100_{gpus}.json"
        big.write_text(f'{{"metadata": {{"gap_seconds": 60}}, "data": {data}}}')
    assert "is 1 = up?" in import_markets("spot-counts", [big], Options()).warnings[0]
    for wrong in ("[-1, 1]", "[true, 1]", "[0.5]", "[]", "5"):
        big.write_text(f'{{"metadata": {{"gap_seconds": 60}}, "data": {wrong}}}')
        with pytest.raises(InvalidInput):
            import_markets("spot-counts", [big], Options())


def test_events_that_cannot_be(tmp_path: Path) -> None:
    """Each bad line is named: back in time, unknown node, twice added."""
    source = tmp_path / "e.csv"
    source.write_text("5000,add,a\n4000,add,b\n6000,remove,c\n7000,add,a\n8000,move,a\n")
    with pytest.raises(InvalidInput) as caught:
        import_markets("spot-events", [source], Options())
    assert [f.line for f in caught.value.faults] == [2, 3, 4, 5]


def test_window(tmp_path: Path) -> None:
    """From 100 s on for 100 s: what is in force then counts from 0; outside nothing is left."""
    source = sample("spot-events", tmp_path)
    (s,) = import_markets(
        "spot-events", [source], Options(gpus=8), TimeWindow(100, 100 / 3600)
    ).series
    assert steps(*s.gpus) == "0:8 20:16"
    with pytest.raises(UsageError, match="have a pool"):
        import_markets("spot-events", [source, source], Options())


def test_onto_a_workload(tmp_path: Path) -> None:
    """The command puts a market onto the spot pool of a workload, which then has exactly those
    GPUs.
    """
    generate("spot", seed=1, jobs=12).write(tmp_path / "w")
    source = sample("spot-events", tmp_path)
    words = f"import spot-events {source} --gpus 4 --onto {tmp_path / 'w'} --pool p9=a100-spot"
    assert run([*words.split(), "--out", str(tmp_path / "new")]) == 0
    new, old = read_workload(tmp_path / "new"), read_workload(tmp_path / "w")
    p = new.problem.pools.pool.index("a100-spot")
    assert new.problem.pools.market[p] == Kind.SPOT and new.problem.pools.gpus[p] == 8
    rows = new.changes.gpus >= 0
    assert (new.changes.at_s[rows] - new.problem.now_s).tolist() == [90, 120]
    assert new.changes.gpus[rows].tolist() == [4, 8]
    of_prices = [(~np.isnan(w.changes.price_per_gpu_hour)).sum() for w in (new, old)]
    assert of_prices[0] == of_prices[1]
    with pytest.raises(UsageError, match="did you mean"):
        onto(old, import_markets("spot-events", [source], Options()), {"p9": "a100-spt"})


def test_a_misspelt_column_of_a_catalogue_is_named(tmp_path: Path) -> None:
    """Most cells of a catalogue may be empty, so that a column that is not there must be told
    apart.
    """
    source = sample("catalog", tmp_path)
    source.write_text(source.read_text().replace("SpotPrice", "SpotPrize"))
    with pytest.raises(InvalidInput, match='has no column "SpotPrice"'):
        import_markets("catalog", [source], Options())
