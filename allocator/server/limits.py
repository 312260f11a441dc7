"""How often a client may ask: token buckets by token and by address, and wrong tokens by address.

A bucket holds `burst` requests and is refilled by `rate` a second. Only the latest clients are
remembered, so the memory is bounded; a forgotten client has a full bucket.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Hashable

from allocator.server.errors import Refusal
from allocator.server.options import ServerOptions

MOST_CLIENTS = 20_000
MINUTE_S = 60.0


class Buckets:
    """The buckets of many clients."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self._level: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def find_wait(self, client: Hashable) -> float:
        """Return the seconds until the client may ask again; 0: now."""
        return max(0.0, (1.0 - self._refill(client)) / self.rate)

    def take(self, client: Hashable) -> float:
        """Count one request, and return the seconds to wait if it is one too many, else 0."""
        level = self._refill(client)
        if level < 1.0:
            return (1.0 - level) / self.rate
        self._level[client] = level - 1.0, time.monotonic()
        self._level.move_to_end(client)
        while len(self._level) > MOST_CLIENTS:
            self._level.popitem(last=False)
        return 0.0

    def _refill(self, client: Hashable) -> float:
        level, at = self._level.get(client, (self.burst, 0.0))
        return min(self.burst, level + self.rate * (time.monotonic() - at))


class Limits:
    """The limits of one service."""

    def __init__(self, options: ServerOptions) -> None:
        self.tokens = Buckets(options.rate, options.burst)
        self.addresses = Buckets(options.address_rate, options.address_burst)
        wrong = options.wrong_tokens_per_minute
        self.wrong = Buckets(wrong / MINUTE_S, wrong)

    def check_token(self, token_id: int) -> None:
        """Count a request of a token. Raises Refusal if it is one too many."""
        _refuse_soon(self.tokens.take(token_id), "the token asks too often")

    def check_address(self, address: str) -> None:
        """Count a request of an address. Raises Refusal if it is one too many."""
        _refuse_soon(self.addresses.take(address), "too many requests of this address")

    def check_wrong_tokens(self, address: str) -> None:
        """Raise Refusal if the address has shown too many wrong tokens."""
        _refuse_soon(self.wrong.find_wait(address), "too many wrong tokens of this address")

    def count_wrong_token(self, address: str) -> None:
        """Count a wrong token of an address."""
        self.wrong.take(address)


def _refuse_soon(wait_s: float, message: str) -> None:
    if wait_s > 0:
        raise Refusal(
            429, "too_many", message, headers={"Retry-After": str(max(1, math.ceil(wait_s)))}
        )
