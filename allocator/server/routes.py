"""Routes with handlers that get what a caller sees in one transaction."""

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from typing import Any, TypeVar

from fastapi import APIRouter, Request

from allocator.server.access import Reader, get_service
from allocator.server.views.sight import Sight

F = TypeVar("F", bound=Callable[..., Any])


class Routes(APIRouter):
    """A router that opens a transaction for each request, and closes it before the answer.

    A handler is a plain function. Its first parameter is a Sight; the others are those of the
    request, as FastAPI reads them. By default its tag is the first part of its path.
    """

    def reads(
        self, path: str, role: Any = Reader, show: Callable[..., Any] | None = None, **more: Any
    ) -> Callable[[F], F]:
        """Decorate the handler of a GET.

        With `show`, the answer is that function of the request, the caller and what the handler
        returns.
        """
        return self._add("GET", path, role, show, more)

    def changes(self, method: str, path: str, role: Any, **more: Any) -> Callable[[F], F]:
        """Decorate the handler of a request that changes something, which needs a role."""
        return self._add(method, path, role, None, more)

    def _add(
        self, method: str, path: str, role: Any, show: Callable[..., Any] | None, more: Any
    ) -> Callable[[F], F]:
        def add(function: F) -> F:
            @wraps(function)
            async def handle(request: Request, caller: Any, **given: Any) -> Any:
                def answer(sight: Sight) -> Any:
                    result = function(sight, **given)
                    return result if show is None else show(request, caller, result)

                queue = get_service(request).queue
                return await (queue.look if method == "GET" else queue.change)(caller, answer)

            own = inspect.signature(function, eval_str=True)
            parameters = (
                Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request),
                Parameter("caller", Parameter.KEYWORD_ONLY, annotation=role),
                *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in [*own.parameters.values()][1:]),
            )
            handle.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
            tags = {"tags": [path.split("/")[1]]}
            self.add_api_route(path, handle, methods=[method], **tags | more)
            return function

        return add
