"""`allocator explain`: why one job got what it got, and what would change it."""

from argparse import Namespace

from allocator import validate
from allocator.cli.output import Answer, text_of, warn
from allocator.cli.parsing import read_limits, take
from allocator.cli.sources import read_source
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.explain import explain as find_reasons


def explain(args: Namespace) -> Answer:
    snapshot = read_source(args.folder_or_queue)
    warn(validate(snapshot).warnings)
    command = take(SolveCommand, args, limits=read_limits(args))
    told = find_reasons(snapshot, args.job, command, tries=args.tries)
    return Answer(told.to_dict(), text_of(told.lines()))
