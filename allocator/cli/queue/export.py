"""`solve --write-model`: write the model of a round as a file for other solvers."""

from __future__ import annotations

from allocator.cli.request import Request


def check(path: str) -> None:
    """Raise UsageError if the ending of the file is no format, before anything is read."""
    from allocator.io.performance_models import check_format

    check_format(path)


def export(folder: str, request: Request, path: str) -> None:
    """Write the model that `solve` would give to a solver; raises the errors of reading it."""
    from allocator import read_snapshot
    from allocator.domain.rules.snapshot_rules import validate
    from allocator.engine.decision import override_settings
    from allocator.io.performance_models import write_model
    from allocator.options.instance_building import compile_round

    problem = override_settings(validate(read_snapshot(folder)), request.objective, request.budget)
    write_model(compile_round(problem).model, path)
