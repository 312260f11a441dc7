"""A child of a batch: it reads one JSON line per snapshot and writes one summary line for each.

When the parent ends in any way, standard input ends. Then the child ends at once with its solvers.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

from allocator.cli.request import Request, summarise


def main() -> None:
    """Work until standard input ends or SIGTERM arrives."""
    signal.signal(signal.SIGTERM, _stop)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # nothing else may be written between the summaries
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while True:
        order = json.loads(orders.get())
        summary = summarise(order["folder"], Request(**order["request"]), order["out"])
        out.write(json.dumps(summary.to_dict()) + "\n")
        out.flush()


def _listen(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    main()
