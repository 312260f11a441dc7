"""The API server of a kubeconfig, by the access and the connections of the official client."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from allocator.clusters.adapter import ClusterUnreachable, Json, Refused
from allocator.clusters.kubernetes.api import Request
from allocator.errors import UsageError, install_command

MOST_TEXT = 1 << 20  # bytes of an answer that is text


class ClientApi:
    """An API server that the official client is configured for.

    Parameters
    ----------
    context : str, optional
        Context of the kubeconfig; None: the current one, or the service account of the pod in which
        this runs.
    kubeconfig : str, optional
        File; None: as kubectl finds it.

    Attributes
    ----------
    notes : tuple of str
        What the user has to know of the connection.

    Raises
    ------
    UsageError
        If the client is not installed, or there is no such context.
    """

    def __init__(self, context: str | None = None, kubeconfig: str | None = None) -> None:
        try:
            import urllib3
            from kubernetes import client, config
        except ImportError as error:
            raise UsageError(
                "the official client of Kubernetes is not installed: "
                + install_command("kubernetes")
            ) from error
        configuration = client.Configuration()
        try:
            # the client reads the variable only once, when it is imported
            place = kubeconfig or os.environ.get("KUBECONFIG") or None
            config.load_kube_config(place, context, configuration)
        except (config.ConfigException, OSError) as error:
            if context is not None or kubeconfig is not None:
                raise UsageError(f"the kubeconfig cannot be used: {error}") from error
            try:
                config.load_incluster_config(configuration)
            except config.ConfigException:
                raise UsageError(
                    f"there is no kubeconfig, and this is no pod of a cluster: {error}"
                ) from error
        self.notes: tuple[str, ...] = ()
        if configuration.host.startswith("https:") and not configuration.verify_ssl:
            # urllib3 would say so at each request
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            self.notes = (
                f"{configuration.host}: its certificate is not checked, as the kubeconfig says",
            )
        self._configuration = configuration
        self._connections = client.ApiClient(configuration).rest_client.pool_manager

    def send(self, request: Request) -> Json:
        """Send a request and return the object of the answer."""
        import urllib3

        wanted = "*/*" if request.is_text else "application/json"
        headers = {"Accept": wanted, "Content-Type": request.content_type}
        for one in self._configuration.auth_settings().values():
            if one["value"]:
                headers[one["key"]] = one["value"]
        try:
            answer = self._connections.request(
                request.method,
                self._configuration.host + request.path,
                body=None if request.body is None else json.dumps(request.body),
                headers=headers,
                timeout=urllib3.Timeout(total=request.patience_s),
                retries=False,
                preload_content=not request.is_text,
            )
            data = _read_text(answer, request.patience_s) if request.is_text else answer.data
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterUnreachable(
                f"{self._configuration.host} does not answer: {error}"
            ) from error
        return read_answer(answer.status, data, request)


def _read_text(answer: Any, patience_s: float) -> bytes:
    """Return the beginning of a text, of which a pod decides how much and how fast it comes."""
    until = time.monotonic() + patience_s
    text = b""
    while len(text) < MOST_TEXT and time.monotonic() < until:
        part = answer.read1(1 << 16)
        if not part:
            answer.release_conn()
            return text
        text += part
    answer.close()
    return text


def read_answer(status: int, data: bytes, request: Request) -> Json:
    """Return the object of an answer.

    Raises
    ------
    Refused
        If the status is an error of the request.
    ClusterUnreachable
        If the server is not well, or the answer is no object.
    """
    if request.is_text and status < 300:
        return {"text": data.decode("utf-8", "replace")}
    try:
        answer = json.loads(data or b"{}")
    except ValueError:
        answer = None
    place = f"{request.method} {request.path.partition('?')[0]}"
    if isinstance(answer, dict) and status < 300:
        return answer
    message = answer.get("message") if isinstance(answer, dict) else None
    # a pod may refuse a request that the API server passed on to it
    is_of_pod = request.is_text and message is None
    if 400 <= status < 500 and status != 429 and not is_of_pod:
        hint = "; allocator rbac prints what is needed" if status == 403 else ""
        raise Refused(status, f"{place}: {status} {message or 'refused'}{hint}")
    raise ClusterUnreachable(f"{place}: {status} {message or 'no answer that makes sense'}")
