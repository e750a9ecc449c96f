"""Find the API server and the credentials: kubeconfig, service account, exec plugins, ``--master``.

Credentials are re-read periodically and after a 401, because tokens and certificates expire. kubernetes-asyncio reads
kubeconfigs; importing it costs 33 MiB, so it is imported only for them. In a pod, the service account's files suffice.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.model.urls import url_problem

log = structlog.get_logger(__name__)

REFRESH_PERIOD = 60.0
"""Seconds after which credentials are read again, as in client-go."""

LOAD_TIMEOUT = 60.0
"""Seconds after which a source of credentials, such as a hanging exec plugin, is abandoned."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory where Kubernetes mounts a pod's token and the API server's CA certificate."""


class ConfigurationError(ValueError):
    """The configuration cannot be read or names no reachable API server; the message states what to change."""


@dataclasses.dataclass
class _Settings:
    """The attributes that kubernetes-asyncio's loaders set, under its names."""

    host: str = ""
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    api_key: dict[str, str] = dataclasses.field(default_factory=dict)
    refresh_api_key_hook: Callable[..., object] | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that carry the credentials."""
        token = self.api_key.get("BearerToken", "").strip()
        return {"Authorization": token} if token else {}


Loader = Callable[[bool], Awaitable[_Settings]]
"""Reads the settings. True means that the server refused the current ones, so no cached ones may be returned."""


class Credentials:
    """The current credentials, re-read every `REFRESH_PERIOD` and when the server refuses them.

    Concurrent calls of ``refresh`` share one read.
    """

    def __init__(self, settings: _Settings, load: Loader | None, context: ssl.SSLContext | None, clock: Clock) -> None:
        self.headers: Mapping[str, str] = settings.headers()
        self.certificate = _read_key_pair(settings)
        """Client certificate and key, in PEM; the key is None if the certificate's file contains it."""
        self.ssl_context = context
        """TLS settings from the current files, including a replaced CA bundle."""
        self.authority = _read_file(settings.ssl_ca_cert)
        """CA bundle for the server's certificate, in PEM; None for the system's CAs."""
        self._load = load
        self._loads: dict[bool, asyncio.Task[bool]] = {}
        """Reads in progress, by whether the server refused the credentials."""
        self._clock = clock
        self._due = clock.monotonic() + REFRESH_PERIOD if load else float("inf")

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic() >= self._due

    def identity(self) -> tuple[object, ...]:
        """Return everything that identifies the client to the server."""
        return self.headers.get("Authorization"), self.certificate

    async def refresh(self, *, refused: bool = False, timeout: float | None = None) -> bool:
        """Read the credentials again; return whether they changed.

        If reading fails, it is logged and the current credentials stay in use. If it takes longer than ``timeout``
        seconds, they stay in use until it has finished.
        """
        if self._load is None:
            return False
        self._due = self._clock.monotonic() + REFRESH_PERIOD
        task = self._loads.get(refused)
        if task is None:
            task = self._loads[refused] = asyncio.ensure_future(self._load_once(self._load, refused))
            task.add_done_callback(lambda _: self._loads.pop(refused))
        done, _ = await asyncio.wait([task], timeout=timeout)
        if not done:
            log.warning("credentials_not_refreshed", error=f"not read within {timeout:g} s; the old ones stay in use")
        return bool(done) and not task.cancelled() and task.result()

    async def close(self) -> None:
        loads = list(self._loads.values())
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def _load_once(self, load: Loader, refused: bool) -> bool:
        try:
            async with asyncio.timeout(LOAD_TIMEOUT):
                settings = await load(refused)
            pair, authority = _read_key_pair(settings), _read_file(settings.ssl_ca_cert)
            identity = settings.headers().get("Authorization"), pair
            if identity == _NO_CREDENTIALS and identity != self.identity():
                raise ConfigurationError("the source has no credentials any more")
            if self.ssl_context is not None and (pair, authority) != (self.certificate, self.authority):
                self.ssl_context, self.authority = _ssl_context(settings), authority
        except Exception as error:  # noqa: BLE001 - plugins and files fail in any way; the old credentials may be valid
            log.warning("credentials_not_refreshed", error=str(error) or type(error).__name__)
            return False
        before = self.identity()
        self.headers, self.certificate = settings.headers(), pair
        return self.identity() != before


_NO_CREDENTIALS = (None, (None, None))


def _read_key_pair(settings: _Settings) -> tuple[bytes | None, bytes | None]:
    return _read_file(settings.cert_file), _read_file(settings.key_file)


def _read_file(file: str | None) -> bytes | None:
    try:
        return Path(file).read_bytes() if file else None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error


@dataclasses.dataclass(frozen=True)
class Connection:
    """An API server: base URL without a trailing slash, TLS, proxy and credentials.

    If ``verify_tls``, the server's certificate must be signed by ``credentials.authority``; ``credentials.ssl_context``
    is configured accordingly.
    """

    base_url: str
    credentials: Credentials
    server_hostname: str | None = None
    proxy: str | None = None
    verify_tls: bool = True

    def check_streams(self) -> None:
        """Raise ConfigurationError if the proxy supports requests but not watches and WebSockets."""
        if self.proxy and not self.proxy.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"proxy-url {self.proxy}: watches need an HTTP proxy; name one with http:// or https://"
            )
        if self.proxy:
            _check_url("proxy-url", self.proxy, self.proxy)


async def connect(
    kubeconfig: str | None = None,
    master: str | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Connection:
    """Find the API server.

    Args:
        kubeconfig: Path of a file, or several as in $KUBECONFIG.
        master: URL that overrides the kubeconfig's server; without ``kubeconfig``, used without credentials.
        context: Name of a context in the kubeconfig; its current context by default.

    Without ``kubeconfig`` and ``master``: the service account in a pod, else ``$KUBECONFIG``, else ``~/.kube/config``.
    Raises ConfigurationError if there is no server or its address is malformed.
    """
    environ = os.environ if environ is None else environ
    load = _choose_loader(kubeconfig, master, context, environ)
    settings = await load(False) if load else _Settings()
    base_url = master or settings.host
    if "://" not in base_url:  # the default scheme, as in client-go
        secure = settings.ssl_ca_cert or settings.cert_file or not settings.verify_ssl
        base_url = f"http{'s' if secure else ''}://{base_url}"
    source = "--master" if master else f"kubeconfig {kubeconfig}, server" if kubeconfig else "the API server's address"
    _check_url(source, master or settings.host, base_url)
    base_url = base_url.rstrip("/")
    tls = _ssl_context(settings) if base_url.startswith("https") else None
    credentials = Credentials(settings, load, tls, clock)
    return Connection(
        base_url,
        credentials,
        settings.tls_server_name,
        settings.proxy,
        verify_tls=settings.verify_ssl,
    )


def _check_url(source: str, given: str, url: str) -> None:
    if problem := url_problem(url):
        raise ConfigurationError(f"{source} {given!r}: {problem}; write it like https://HOST:PORT")


class Context(NamedTuple):
    """A context of a kubeconfig; ``namespace`` is empty if it sets none."""

    name: str
    namespace: str


def list_contexts(kubeconfig: str) -> tuple[list[Context], str]:
    """Return the contexts of a kubeconfig and the name of the current one; none if the file cannot be read."""
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger

    if not any(path.exists() for path in _files(kubeconfig)):
        return [], ""  # the library would log a warning
    try:
        merged: Any = KubeConfigMerger(kubeconfig).config
        named = [(str(one["name"]), one.value.get("context") or {}) for one in merged.value["contexts"]]
        current = _current_context(kubeconfig) or ""
        return [Context(name, str(one.get("namespace") or "")) for name, one in named], current
    except Exception:  # noqa: BLE001 - the file can be anything; `connect` reports what is wrong with it
        return [], ""


def _choose_loader(
    kubeconfig: str | None, master: str | None, context: str | None, environ: Mapping[str, str]
) -> Loader | None:
    if not kubeconfig and not master:
        if environ.get("KUBERNETES_SERVICE_HOST") and context is None:
            return _in_cluster(environ)
        kubeconfig = environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        if not any(path.exists() for path in _files(kubeconfig)):
            raise ConfigurationError(
                f"no API server: not inside a pod, and {kubeconfig} does not exist; give --kubeconfig or --master"
            )
    if not kubeconfig:
        return None
    if not any(path.exists() for path in _files(kubeconfig)):
        raise ConfigurationError(f"kubeconfig {kubeconfig} does not exist")
    return _Kubeconfig(kubeconfig, context).load


def _files(kubeconfig: str) -> list[Path]:
    return [Path(part).expanduser() for part in kubeconfig.split(os.pathsep) if part]


def _current_context(kubeconfig: str) -> str | None:
    """Return the first current-context that any of the files sets, as kubectl does."""
    import yaml

    for path in _files(kubeconfig):
        config = yaml.safe_load(path.read_text()) if path.exists() else None
        if isinstance(config, dict) and config.get("current-context"):
            return str(config["current-context"])
    return None


def _ssl_context(settings: _Settings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"certificates of {settings.host} cannot be read: {error}") from error
    # CAs of kubeadm and others lack extensions that strict mode, the default since Python 3.13, requires
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Kubeconfig:
    def __init__(self, path: str, context: str | None = None) -> None:
        self._path = path
        self._context = context
        self._settings = _Settings()
        self._loader: Any = None

    async def load(self, refused: bool) -> _Settings:
        """Return the context's settings. An exec plugin runs again only when its token expires."""
        from kubernetes_asyncio.config import load_kube_config

        try:
            if self._loader is not None and not refused and "exec" in (self._loader._user or {}):
                if hasattr(self._loader, "exec_plugin_expiry"):
                    await self._loader.load_from_exec_plugin()
                    self._settings.api_key["BearerToken"] = getattr(self._loader, "token", "")
                return self._settings
            settings = _Settings()
            context = self._context or _current_context(self._path)
            # renewed OIDC tokens are written back, as kubectl does, if the files are writable
            writable = all(os.access(path, os.W_OK) for path in _files(self._path))
            loader = await load_kube_config(self._path, context, client_configuration=settings, persist_config=writable)
            _complete_settings(loader, settings)
            if self._settings.host not in ("", settings.host):
                raise ValueError(f"context {context} names server {settings.host} now, before {self._settings.host}")
            # stay with this context even if current-context changes: another one may be for another server
            self._loader, self._context = loader, context
        except Exception as error:
            raise ConfigurationError(f"kubeconfig {self._path}: {error or type(error).__name__}") from error
        self._settings = settings
        return settings


def _complete_settings(loader: Any, settings: _Settings) -> None:
    """Apply what kubernetes-asyncio leaves out. Raises ValueError."""
    cluster, user = loader._cluster, loader._user
    if any(name in (user or {}) for name in ("as", "as-uid", "as-groups", "as-user-extra")):
        raise ValueError("the user is to act as another user (as), which is not supported; name another user")
    without_token = settings.api_key.get("BearerToken", "") in ("", "Bearer ", "Bearer None")
    if "exec" in (user or {}) and without_token and not settings.cert_file:
        raise ValueError("the exec plugin gave neither a token nor a certificate with its key")
    authorities = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
    if "://" not in settings.host and any(cluster.safe_get(name) for name in authorities):
        # as client-go does for a server without a scheme; the library skipped the certificates
        cluster.value["server"] = f"https://{settings.host}"
        loader._load_cluster_info()
        loader._set_config(settings)


def _in_cluster(environ: Mapping[str, str]) -> Loader:
    async def load(refused: bool) -> _Settings:
        """The settings as they are now; the kubelet rewrites the token's file before it expires."""
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT")
        try:
            token = (SERVICE_ACCOUNT / "token").read_text().strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"service account: {error}") from error
        if not token or not port:
            raise ConfigurationError(f"service account: {'no KUBERNETES_SERVICE_PORT' if token else 'an empty token'}")
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return _Settings(url, str(SERVICE_ACCOUNT / "ca.crt"), api_key={"BearerToken": f"Bearer {token}"})

    return load
