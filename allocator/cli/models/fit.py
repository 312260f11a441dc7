"""`allocator fit`: speed models from observed speeds."""

from __future__ import annotations

import argparse
from typing import Any

from allocator.cli.output import show_result, write_results
from allocator.cli.parsing import command, flag, formats, number, option, words
from allocator.cli.tables import Table, show

EXAMPLES = """
allocator fit data/snapshots/medium/rates.csv
allocator fit data/examples/observations.csv --out fitted      models.csv for a snapshot, fit.csv, \
fit.svg
allocator fit profiles --from sia --forms goodput --format csv
"""
ABOUT = """\
For each model and GPU type the form of speed curve that predicts best what it has not seen (each
size is left out in turn), fitted to everything: a row of models.csv, its error, the sizes it holds
for. docs/speed-models.md has the formulas. Sources: rates = a CSV like rates.csv (default); sia,
gavel, mlperf = published profiles."""


@command(
    "fit",
    "speed models from observed speeds",
    ABOUT,
    EXAMPLES,
    option("source", "OBSERVATIONS", "file, or folder of profiles, of observed speeds"),
    option(
        "--from",
        None,
        "what the source is (default: rates)",
        default="rates",
        dest="form",
        choices=("rates", "sia", "gavel", "mlperf"),
    ),
    option(
        "--forms",
        "A,B",
        'only these: overhead, power, capped, iteration, "iteration over batches", goodput',
        words,
        (),
    ),
    option(
        "--reach",
        "F",
        "offer sizes up to F times the largest measured one (default: 1)",
        number(1.0),
        1.0,
    ),
    flag(
        "--fill",
        "also guess the pairs of model and GPU type that were never measured, from the others",
    ),
    option("--out", "DIR", "write models.csv, fit.csv and fit.svg there"),
    formats("table", "json", "csv", about="csv is models.csv"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.domain.findings import did_you_mean
    from allocator.errors import UsageError
    from allocator.io import fits
    from allocator.io.observations import read_observations
    from allocator.performance.fit.choose import ORDER, extend_range, fit
    from allocator.performance.fit.similar import guess_curves
    from allocator.report.charts.choices import draw_fits

    for form in args.forms:
        if form not in ORDER:
            raise UsageError(
                f"--forms {form}: one of {', '.join(ORDER)}{did_you_mean(form, ORDER)}"
            )
    seen = read_observations(args.source, args.form)
    fitted = [extend_range(f, args.reach) for f in fit(seen, args.forms or ORDER)]
    if not fitted:
        raise UsageError(
            f"{args.source}: none of the forms {', '.join(args.forms)} can be fitted to these rows"
        )
    guessed = guess_curves(seen) if args.fill else []
    models = fits.models_csv(fitted, guessed)
    if args.out:
        files = {"models.csv": models, "fit.csv": fits.report_csv(fitted)}
        write_results(args.out, {**files, "fit.svg": draw_fits(fitted)})
    document = {
        "models": [fits.fit_record(f) for f in fitted],
        "guesses": [
            {
                "model": g.model,
                "gpu_type": g.gpu_type,
                "kind": "power",
                "parameters": fits.parameters("power", g.parameters),
            }
            for g in guessed
        ],
    }
    show_result(args.format, document, lambda: _table(fitted, guessed), lambda: models)
    return 0


def _table(fitted: Any, guessed: Any) -> None:
    def percent(share: float) -> str:
        return f"{100 * share:.1f} %"

    rows = [
        (
            f.model,
            f.gpu_type,
            f.form,
            f"{f.sizes[0]} to {f.parameters['max_gpus']:g}",
            len(f.seen),
            percent(f.mean) if len(f.sizes) > 1 else "-",
            percent(f.inside),
            _format_parameters(f),
        )
        for f in fitted
    ]
    what = ("model", "GPU type", "form", "GPUs", ">rows", ">error", ">on its rows", "parameters")
    tables = [Table("fitted (error: predicting a size from the other sizes)", what, rows)]
    if guessed:
        guesses = [
            (
                g.model,
                g.gpu_type,
                g.parameters["rate_1"],
                g.parameters["exponent"],
                percent(g.parameters["error"]),
            )
            for g in guessed
        ]
        numbers = (">rate_1", ">exponent", ">error")
        tables.append(Table("guessed from the others", ("model", "GPU type", *numbers), guesses))
    show(tables)


def _format_parameters(f: Any) -> str:
    """Return fitted parameters with their standard deviations as text."""
    from allocator.performance.fit.choose import FREE

    said = []
    for name in FREE[f.kind]:
        if f.parameters.get(name):
            spread = f.deviation.get(name)
            said.append(
                f"{name} {f.parameters[name]:.3g}" + ("" if spread is None else f" +- {spread:.1g}")
            )
    if f.parameters.get("noise_scale"):
        said.append(f"noise_scale {f.parameters['noise_scale']:.3g}")
    return ", ".join(said)
