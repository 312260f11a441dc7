"""The options of the HTTP service."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerOptions:
    """Limits and rights of one HTTP service.

    Parameters
    ----------
    open_reading : bool
        Whoever reaches the service reads as a viewer, without a token.
    names : sequence of str
        Names under which the service is reached, besides localhost and IP addresses.
    user_header : str
        Header in which a proxy names the user, who has the rights of the token of that name; empty:
        none is read.
    proxies : sequence of str
        Addresses whose `user_header` is believed.
    tls : bool
        The service is reached by https, so that cookies are marked as secure.
    most_body_bytes, body_s
        Size of a request body, and seconds within which it must arrive.
    head_s : float
        Seconds within which the head of the next request of a connection must arrive.
    send_s : float
        Seconds within which a client must take a part of an answer.
    most_connections, most_followers, most_followers_of_token
        Connections at once, and how many of them follow the events, in all and with one token.
    rate, burst
        Requests per second of one token, and how many may come at once.
    address_rate, address_burst
        The same for one address, for all its tokens.
    wrong_tokens_per_minute : int
        Wrong tokens of one address; more are refused unseen.
    session_s : float
        Seconds after which a browser has to log in again.
    write_wait_s : float
        Seconds that a change waits for the database.
    most_writes : int
        Changes that wait at once.
    advice_s, most_advice
        Seconds that a what-if or an explanation may take, and how many run at once.
    poll_s : float
        Seconds between looks for events.
    """

    open_reading: bool = False
    names: Sequence[str] = ()
    user_header: str = ""
    proxies: Sequence[str] = ("127.0.0.1", "::1")
    tls: bool = False
    most_body_bytes: int = 1 << 20
    body_s: float = 20.0
    head_s: float = 10.0
    send_s: float = 30.0
    most_connections: int = 2000
    most_followers: int = 1000
    most_followers_of_token: int = 300
    rate: float = 20.0
    burst: float = 100.0
    address_rate: float = 500.0
    address_burst: float = 1000.0
    wrong_tokens_per_minute: int = 20
    session_s: float = 12 * 3600.0
    write_wait_s: float = 10.0
    most_writes: int = 200
    advice_s: float = 30.0
    most_advice: int = 2
    poll_s: float = 0.5
