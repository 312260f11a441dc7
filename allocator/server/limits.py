"""How often a client may ask: token buckets by token, by address, and for wrong tokens."""

import math
import time
from collections import OrderedDict
from collections.abc import Hashable

from allocator.server.errors import Refusal

MOST_CLIENTS = 20_000


class Buckets:
    """The buckets of many clients, and what a client is told whose bucket is empty.

    A bucket holds `burst` requests and is refilled by `rate` a second. Only the latest clients are
    remembered, so the memory is bounded; a forgotten client has a full bucket.
    """

    def __init__(self, rate: float, burst: float, message: str) -> None:
        self.rate = rate
        self.burst = burst
        self.message = message
        self._level: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def check(self, client: Hashable) -> float:
        """Return how many requests the client may make now. Raises Refusal if there is none."""
        level, at = self._level.get(client, (self.burst, 0.0))
        level = min(self.burst, level + self.rate * (time.monotonic() - at))
        if level < 1.0:
            seconds = max(1, math.ceil((1.0 - level) / self.rate))
            raise Refusal(429, "too_many", self.message, headers={"Retry-After": str(seconds)})
        return level

    def take(self, client: Hashable) -> None:
        """Count a request. Raises Refusal if it is one too many."""
        self._level[client] = self.check(client) - 1.0, time.monotonic()
        self._level.move_to_end(client)
        while len(self._level) > MOST_CLIENTS:
            self._level.popitem(last=False)
