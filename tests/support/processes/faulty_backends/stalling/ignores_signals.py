"""Ignores every signal that can be ignored and never returns, busy all the time."""

import signal


def solve(*_):
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(s, signal.SIG_IGN)
    while True:
        pass
