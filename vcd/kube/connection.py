"""Where the API server is and how to prove who we are: kubeconfig, service account, exec plugins, ``--master``.

kubernetes-asyncio reads kubeconfigs. It brings 33 MiB of generated models along, so it is imported only for these: in
a pod, where the scheduler runs for long, the service account's files are all there is to read.
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
from vcd.model.addresses import url_problem

log = structlog.get_logger(__name__)

REFRESH_PERIOD = 60.0
"""Seconds after which tokens are read again, as client-go does."""

LONGEST_READING = 60.0
"""Seconds after which a source that does not end, as a plugin that hangs, is given up."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's token and the certificate of the API server."""


class ConfigurationError(ValueError):
    """The configuration names no API server that can be reached, or cannot be read; the message says what to change."""


@dataclasses.dataclass
class _Settings:
    """What kubernetes-asyncio's loaders fill in; the names are theirs."""

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
        """The headers that carry the credentials."""
        token = self.api_key.get("BearerToken", "").strip()
        return {"Authorization": token} if token else {}


Loader = Callable[[bool], Awaitable[_Settings]]
"""Reads the settings again; True: the server refused the old ones, so nothing cached may be used."""


class Credentials:
    """The current credentials, read again each minute and whenever the server refuses them.

    However many ask for it, a source is read once at a time.
    """

    def __init__(self, settings: _Settings, load: Loader | None, context: ssl.SSLContext | None, clock: Clock) -> None:
        self.headers: Mapping[str, str] = settings.headers()
        self.certificate = _pair(settings)
        """The client's certificate and its key, in PEM; None for none, or for a key beside its certificate."""
        self.ssl_context = context
        """TLS by the files as they are now: also the server's authority may be replaced in its place."""
        self.authority = _content(settings.ssl_ca_cert)
        """The certificates that the server's has to be of, in PEM; None for the system's."""
        self._load = load
        self._readings: dict[bool, asyncio.Task[bool]] = {}
        """What is being read now, by whether the server refused what was known."""
        self._clock = clock
        self._due = clock.monotonic() + REFRESH_PERIOD if load else float("inf")

    @property
    def due(self) -> bool:
        """Whether it is time to call ``refresh``."""
        return self._clock.monotonic() >= self._due

    def shown(self) -> tuple[object, ...]:
        """All by which a request shows who makes it."""
        return self.headers.get("Authorization"), self.certificate

    async def refresh(self, *, refused: bool = False, within: float | None = None) -> bool:
        """Read the credentials again; True when they changed.

        A source that cannot be read leaves the old ones in use, and is reported. One that takes longer than ``within``
        seconds does so, too, and goes on being read.
        """
        if self._load is None:
            return False
        self._due = self._clock.monotonic() + REFRESH_PERIOD
        reading = self._readings.get(refused)
        if reading is None:
            reading = self._readings[refused] = asyncio.ensure_future(self._read(self._load, refused))
            reading.add_done_callback(lambda _: self._readings.pop(refused))
        done, _ = await asyncio.wait([reading], timeout=within)
        if not done:
            log.warning("credentials_not_refreshed", error=f"not read within {within:g} s; the old ones stay so far")
        return bool(done) and not reading.cancelled() and reading.result()

    async def close(self) -> None:
        """Give up what is being read."""
        readings = list(self._readings.values())
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    async def _read(self, load: Loader, refused: bool) -> bool:
        try:
            async with asyncio.timeout(LONGEST_READING):
                settings = await load(refused)
            pair, authority = _pair(settings), _content(settings.ssl_ca_cert)
            shown = settings.headers().get("Authorization"), pair
            if shown == _NOTHING and shown != self.shown():
                raise ConfigurationError("there are none any more")
            if self.ssl_context is not None and (pair, authority) != (self.certificate, self.authority):
                self.ssl_context, self.authority = _ssl_context(settings), authority
        except Exception as error:  # noqa: BLE001 - any kind of plugin or file error; the old credentials may still hold
            log.warning("credentials_not_refreshed", error=str(error) or type(error).__name__)
            return False
        before = self.shown()
        self.headers, self.certificate = settings.headers(), pair
        return self.shown() != before


_NOTHING = (None, (None, None))
"""What ``shown`` is without credentials."""


def _pair(settings: _Settings) -> tuple[bytes | None, bytes | None]:
    """What the files of the client's certificate and key hold: they may be replaced in their place."""
    return _content(settings.cert_file), _content(settings.key_file)


def _content(file: str | None) -> bytes | None:
    try:
        return Path(file).read_bytes() if file else None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error


@dataclasses.dataclass(frozen=True)
class Connection:
    """An API server: its base URL without a trailing slash, TLS, proxy and credentials.

    Its certificate has to be of the credentials' ``authority``, unless it is not to be ``verified`` at all; their
    ``ssl_context`` holds the same.
    """

    base_url: str
    credentials: Credentials
    server_hostname: str | None = None
    proxy: str | None = None
    verified: bool = True

    def check_streams(self) -> None:
        """Raises ConfigurationError where requests can go by the proxy, and watches and tunnels cannot."""
        if self.proxy and not self.proxy.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"proxy-url {self.proxy}: watches and tunnels go by a proxy with http:// or https:// only; name one"
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

    ``kubeconfig`` names a file, ``master`` a URL that overrides its server (or stands alone, without credentials).
    With neither: the service account inside a pod, else ``$KUBECONFIG``, else ``~/.kube/config``. ``context`` is one of
    the kubeconfig's; its current one where none is given.

    Raises ConfigurationError if none of them leads to a server, or an address is malformed.
    """
    environ = os.environ if environ is None else environ
    load = _choose(kubeconfig, master, context, environ)
    settings = await load(False) if load else _Settings()
    base_url = master or settings.host
    if "://" not in base_url:  # as client-go takes an address without a scheme
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
        verified=settings.verify_ssl,
    )


def _check_url(source: str, given: str, url: str) -> None:
    """Raise ConfigurationError for an address by which no request can be sent."""
    if problem := url_problem(url):
        raise ConfigurationError(f"{source} {given!r}: {problem}; write it like https://HOST:PORT")


class Context(NamedTuple):
    """A kubeconfig's context: its name, and the namespace that it is for (empty: none is said)."""

    name: str
    namespace: str


def contexts_of(kubeconfig: str) -> tuple[list[Context], str]:
    """A kubeconfig's contexts, and the name of the current one; none of a file that cannot be read as one."""
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger

    if not any(path.exists() for path in _files(kubeconfig)):
        return [], ""  # the library would log that
    try:
        merged: Any = KubeConfigMerger(kubeconfig).config
        named = [(str(one["name"]), one.value.get("context") or {}) for one in merged.value["contexts"]]
        current = _current_of(kubeconfig) or ""
        return [Context(name, str(one.get("namespace") or "")) for name, one in named], current
    except Exception:  # noqa: BLE001 - whatever the file is; what is wrong with it is said where it is used
        return [], ""


def _choose(
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


def _current_of(kubeconfig: str) -> str | None:
    """The current context: of several files the first that names one says it, as kubectl reads them."""
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
    # cluster CAs of kubeadm and others lack what X.509's strict mode (on since Python 3.13) asks of a CA
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Kubeconfig:
    """A kubeconfig file (or several, as $KUBECONFIG lists them)."""

    def __init__(self, path: str, context: str | None = None) -> None:
        self._path = path
        self._context = context
        self._settings = _Settings()
        self._loader: Any = None

    async def load(self, refused: bool) -> _Settings:
        """The settings of the context. An exec plugin is run again only when its token expires."""
        from kubernetes_asyncio.config import load_kube_config

        try:
            if self._loader is not None and not refused and "exec" in (self._loader._user or {}):
                if hasattr(self._loader, "exec_plugin_expiry"):
                    await self._loader.load_from_exec_plugin()
                    self._settings.api_key["BearerToken"] = getattr(self._loader, "token", "")
                return self._settings
            settings = _Settings()
            context = self._context or _current_of(self._path)
            # an OIDC token that was renewed is written back for kubectl's sake, where that is allowed
            writable = all(os.access(path, os.W_OK) for path in _files(self._path))
            loader = await load_kube_config(self._path, context, client_configuration=settings, persist_config=writable)
            _complete(loader, settings)
            if self._settings.host not in ("", settings.host):
                raise ValueError(f"context {context} is of {settings.host} now, and was of {self._settings.host}")
            # whatever becomes the current one: its credentials are another server's
            self._loader, self._context = loader, context
        except Exception as error:
            raise ConfigurationError(f"kubeconfig {self._path}: {error or type(error).__name__}") from error
        self._settings = settings
        return settings


def _complete(loader: Any, settings: _Settings) -> None:
    """What the library leaves out. Raises ValueError."""
    cluster, user = loader._cluster, loader._user
    if any(name in (user or {}) for name in ("as", "as-uid", "as-groups", "as-user-extra")):
        raise ValueError("the user is to act as another one (as); name a user that need not")
    without_token = settings.api_key.get("BearerToken", "") in ("", "Bearer ", "Bearer None")
    if "exec" in (user or {}) and without_token and not settings.cert_file:
        raise ValueError("the exec plugin gave neither a token nor a certificate with its key")
    authorities = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
    if "://" not in settings.host and any(cluster.safe_get(name) for name in authorities):
        cluster.value["server"] = f"https://{settings.host}"  # as client-go; without it no certificate was read
        loader._load_cluster_info()
        loader._set_config(settings)


def _in_cluster(environ: Mapping[str, str]) -> Loader:
    """The service account that Kubernetes mounts into a pod."""

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
