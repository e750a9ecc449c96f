"""A person's own way to a cluster: the kubeconfig that kubectl would take, and what to say where it leads nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcd.kube.client import KubeClient
from vcd.kube.connection import ConfigurationError, Connection, Context, connect, contexts_of
from vcd.kube.errors import ApiError, KubeError
from vcd.model.words import did_you_mean, some


class ClusterError(ValueError):
    """No cluster that could be read; the message says which, why, and what to do."""


@dataclass(frozen=True)
class Way:
    """A connection, and the context of a kubeconfig that it is of (without a name: a pod's service account)."""

    connection: Connection
    context: Context


async def way_of(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    tunnel: bool = False,
) -> Way:
    """The way that kubectl takes: the file that is named, ``$KUBECONFIG``, ``~/.kube/config``, a pod's service account.

    Raises ClusterError, also where it is to be for a ``tunnel``, and none can go by it.
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
    known, current = ([], "") if file is None else contexts_of(file)
    name = context or current
    return Way(connection, next((one for one in known if one.name == name), Context(name, "")))


def _of_home() -> str | None:
    file = Path.home() / ".kube" / "config"
    return str(file) if file.exists() else None


def _misconfigured(error: ConfigurationError, file: str | None, context: str | None) -> str:
    """What is wrong with a kubeconfig, in a line."""
    names = [] if file is None else [one.name for one in contexts_of(file)[0]]
    if context is not None and names and context not in names:
        return f"kubeconfig {file} has no context {context}{did_you_mean(context, names)}; it has {some(names, 10)}"
    words = " ".join(str(error).split())
    if names or file is None or not Path(file).is_file():
        return words
    # what Python says of a file that is something else altogether tells nobody anything
    internal = isinstance(error.__cause__, TypeError | AttributeError | KeyError)
    detail = "" if internal else f" ({words.partition(f'{file}: ')[2]})"
    return f"kubeconfig {file} names no context that could be used{detail}; name another with --kubeconfig"


async def greet(client: KubeClient, server: str) -> None:
    """See that somebody answers, before more is asked. Raises ClusterError."""
    try:
        await client.request("GET", "/version")
    except ApiError as error:
        if error.status == 401:
            raise refused(server, error) from None
    except KubeError as error:
        words = "is it the right context, and can it be reached from here?"
        raise ClusterError(f"no API server can be reached at {server} ({error}): {words}") from None


def refused(server: str, error: ApiError) -> ClusterError:
    """The error of credentials that the server does not know."""
    words = "log in again, or name another context with --context"
    return ClusterError(f"the API server at {server} does not know these credentials ({error}): {words}")
