"""A child of a batch: one JSON line per snapshot comes in, one summary line goes out.

When the parent is gone, however it went, standard input ends: then the child ends itself at once,
with its solvers.
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
    """Serve until standard input ends or SIGTERM arrives."""
    signal.signal(signal.SIGTERM, _stop)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # nothing else may write among the summaries
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
