"""`allocator fit`: speed models from observed speeds."""

from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from allocator import UsageError
from allocator.cli.output import Answer, Table, pick
from allocator.domain.findings import did_you_mean
from allocator.io import fits
from allocator.io.observations import read_observations
from allocator.performance.fit.choose import FREE, ORDER, SpeedFit, extend_range, fit as fit_curves
from allocator.performance.fit.similar import GuessedCurve, guess_curves
from allocator.report.charts.choices import draw_fits


def fit(args: Namespace) -> Answer:
    for form in args.forms:
        if form not in ORDER:
            raise UsageError(
                f"--forms {form}: one of {', '.join(ORDER)}{did_you_mean(form, ORDER)}"
            )
    seen = read_observations(args.source, args.form)
    fitted = [extend_range(f, args.reach) for f in fit_curves(seen, args.forms or ORDER)]
    if not fitted:
        raise UsageError(
            f"{args.source}: none of the forms {', '.join(args.forms)} can be fitted to these rows"
        )
    guessed = guess_curves(seen) if args.fill else []
    models = fits.models_csv(fitted, guessed)
    document = {
        "models": [fits.fit_record(f) for f in fitted],
        "guesses": [
            {
                **pick(g, "model", "gpu_type"),
                "kind": "power",
                "parameters": fits.parameters("power", g.parameters),
            }
            for g in guessed
        ],
    }
    return Answer(
        document,
        _tables(fitted, guessed),
        models,
        files={
            "models.csv": models,
            "fit.csv": fits.report_csv(fitted),
            "fit.svg": partial(draw_fits, fitted),
        },
    )


def _tables(fitted: Sequence[SpeedFit], guessed: Sequence[GuessedCurve]) -> list[Table]:
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
    return tables


def _format_parameters(f: SpeedFit) -> str:
    """Return fitted parameters with their standard deviations as text."""
    parts = []
    for name in FREE[f.kind]:
        if f.parameters.get(name):
            spread = f.deviation.get(name)
            parts.append(
                f"{name} {f.parameters[name]:.3g}" + ("" if spread is None else f" +- {spread:.1g}")
            )
    if f.parameters.get("noise_scale"):
        parts.append(f"noise_scale {f.parameters['noise_scale']:.3g}")
    return ", ".join(parts)
