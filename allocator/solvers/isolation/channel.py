"""Messages between this process and a worker: pickles and their arrays, over a socket.

A message is MAGIC, the number of parts, the size of each part, and then the parts: the pickle
(protocol 5) and one part per array. Arrays are sent and received without a copy.
"""

from __future__ import annotations

import math
import pickle
import socket
import struct
import threading
import time
from typing import Any

import numpy as np

MAGIC = b"alloc\x01\r\n"
HEAD = struct.Struct("<8sQ")
MOST_PARTS = 1 << 20
MOST_BYTES = 1 << 40
CHUNK = 1 << 20


class ProtocolError(Exception):
    """The bytes received are not a valid message."""


class Channel:
    """One end of a connected socket.

    Several threads may send, but only one may receive. Deadlines are on the clock time.monotonic().
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self) -> None:
        self._end.close()

    def send(self, message: object, deadline: float = math.inf) -> None:
        """Send a message.

        Raises TimeoutError after the deadline, and OSError if the other end is gone.
        """
        arrays: list[pickle.PickleBuffer] = []
        text = pickle.dumps(message, protocol=5, buffer_callback=arrays.append)
        parts = [memoryview(text), *(a.raw() for a in arrays)]
        head = HEAD.pack(MAGIC, len(parts)) + struct.pack(
            f"<{len(parts)}Q", *(len(p) for p in parts)
        )
        with self._sending:
            if sum(map(len, parts)) < CHUNK:
                self._send(b"".join([head, *parts]), deadline)
                return
            self._send(head, deadline)
            for part in parts:
                self._send(part, deadline)

    def receive(self, deadline: float = math.inf) -> Any:
        """Return the next message.

        Raises TimeoutError after the deadline, EOFError at the end of the stream, ProtocolError for
        an invalid message, and OSError.
        """
        magic, count = HEAD.unpack(self._read(HEAD.size, deadline))
        if magic != MAGIC or not 1 <= count <= MOST_PARTS:
            raise ProtocolError("a message without a head")
        sizes = struct.unpack(f"<{count}Q", self._read(8 * count, deadline))
        if sum(sizes) > MOST_BYTES:
            raise ProtocolError(f"a message of {sum(sizes)} bytes")
        parts = [self._read(size, deadline) for size in sizes]
        try:
            return pickle.loads(parts[0], buffers=parts[1:])
        except Exception as error:
            raise ProtocolError(f"a message that cannot be read: {error!r}") from error

    def _send(self, data: Any, deadline: float) -> None:
        """Send in chunks.

        The timeout of a socket counts from its last progress, but a deadline must not.
        """
        view = memoryview(data)
        while view:
            self._end.settimeout(_left(deadline))
            view = view[self._end.send(view[:CHUNK]) :]

    def _read(self, size: int, deadline: float) -> memoryview:
        data = memoryview(np.empty(size, dtype=np.uint8).data) if size else memoryview(b"")
        done = 0
        while done < size:
            self._end.settimeout(_left(deadline))
            got = self._end.recv_into(data[done:])
            if not got:
                raise EOFError("the other end closed the channel")
            done += got
        return data


def _left(deadline: float) -> float | None:
    """Return the seconds until the deadline for socket.settimeout; None waits for ever."""
    if deadline == math.inf:
        return None
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("the deadline passed")
    return left
