"""The child process of `deciding`: a question on standard input, its answer on standard output."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping

from allocator.errors import AllocatorError
from allocator.queue.snapshot import unpack_snapshot
from allocator.server.views.advice import compare_changes, explain_job
from allocator.server.views.answer import Answer
from allocator.server.views.deciding import Effort

ANSWERS: Mapping[str, Callable[..., Answer]] = {"explain": explain_job, "compare": compare_changes}


def answer_question(content: bytes) -> bytes:
    """Answer a question: a line of JSON, and the snapshot that follows it."""
    head, _, packed = content.partition(b"\n")
    question = json.loads(head)
    effort = Effort(**question["effort"])
    seconds = int(effort.limit_s) + 2  # of CPU: the child ends even if nobody kills it
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        answer = ANSWERS[question["ask"]](unpack_snapshot(packed), effort, **question["arguments"])
    except AllocatorError as error:
        return json.dumps({"error": str(error), "exit_code": error.exit_code}).encode()
    return json.dumps({"answer": answer.model_dump()}).encode()


if __name__ == "__main__":
    sys.stdout.buffer.write(answer_question(sys.stdin.buffer.read()))
