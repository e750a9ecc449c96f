"""Connects a command to a cluster with the kubeconfig that kubectl would use, and explains failures.

`vcd.kube.kube_connection` parses kubeconfigs. This module chooses the file and words the errors for users.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcd.kube.api_errors import ApiError, KubeError
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import ConfigurationError, Connection, Context, connect, list_contexts
from vcd.model.wording import did_you_mean, some


class ClusterError(ValueError):
    """A cluster cannot be read; the message states which one, why, and what to do."""


@dataclass(frozen=True)
class Way:
    """A connection, and its kubeconfig context (without a name: a pod's service account)."""

    connection: Connection
    context: Context


async def way_of(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    tunnel: bool = False,
) -> Way:
    """Choose the connection as kubectl does: the named file, ``$KUBECONFIG``, ``~/.kube/config``, a service account.

    Raises ClusterError, also if ``tunnel`` is set and the connection cannot carry a port-forward.
    """
    environ = os.environ if environ is None else environ
    file = kubeconfig or environ.get("KUBECONFIG") or _of_home()
    if file is None and (context is not None or not environ.get("KUBERNETES_SERVICE_HOST")):
        raise ClusterError("no kubeconfig: there is no ~/.kube/config and no $KUBECONFIG; name one with --kubeconfig")
    try:
        connection = await connect(file, context=context, environ=environ)
        if tunnel:
            connection.check_streams()
    except ConfigurationError as error:
        raise ClusterError(_misconfigured(error, file, context)) from None
    known, current = ([], "") if file is None else list_contexts(file)
    name = context or current
    return Way(connection, next((one for one in known if one.name == name), Context(name, "")))


def _of_home() -> str | None:
    file = Path.home() / ".kube" / "config"
    return str(file) if file.exists() else None


def _misconfigured(error: ConfigurationError, file: str | None, context: str | None) -> str:
    """Explain an invalid kubeconfig in one line."""
    names = [] if file is None else [one.name for one in list_contexts(file)[0]]
    if context is not None and names and context not in names:
        return f"kubeconfig {file} has no context {context}{did_you_mean(context, names)}; it has {some(names, 10)}"
    words = " ".join(str(error).split())
    if names or file is None or not Path(file).is_file():
        return words
    # the internal error for a file that is no kubeconfig helps no user
    internal = isinstance(error.__cause__, TypeError | AttributeError | KeyError)
    detail = "" if internal else f" ({words.partition(f'{file}: ')[2]})"
    return f"kubeconfig {file} names no context that could be used{detail}; name another with --kubeconfig"


async def greet(client: KubeClient, server: str) -> None:
    """Check that the API server answers, before other requests. Raises ClusterError."""
    try:
        await client.request("GET", "/version")
    except ApiError as error:
        if error.status == 401:
            raise refused(server, error) from None
    except KubeError as error:
        words = "is it the right context, and can it be reached from here?"
        raise ClusterError(f"no API server can be reached at {server} ({error}): {words}") from None


def refused(server: str, error: ApiError) -> ClusterError:
    """Return the error for unknown credentials."""
    words = "log in again, or name another context with --context"
    return ClusterError(f"the API server at {server} does not know these credentials ({error}): {words}")
