"""`allocator report`: the page and pictures of a simulation, of a benchmark or of a queue."""

from argparse import Namespace

from allocator import UsageError
from allocator.cli.output import Answer, has_progress, note
from allocator.cli.parsing import is_queue
from allocator.report.folders import write_report


def report(args: Namespace) -> Answer:
    source = args.folder_or_queue
    if has_progress():
        note(f"drawing the report of {source}: seconds, minutes for a large benchmark")
    if is_queue(source):
        from allocator.server.pages.written import LAST, write_queue_report

        page = write_queue_report(source, args.out, args.last or LAST)
    elif args.last is not None:
        raise UsageError(f'"{source}" is a folder; only queues have a last round')
    else:
        page = write_report(source, args.out, args.snapshot)
    return Answer({"report": str(page)}, f"{page}\n")
