"""A server's certificate, which is reloaded when its files change: tools that renew it replace the files."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

PERIOD = 1.0
"""Seconds between two checks of the files."""
HANDSHAKE_SECONDS = 10.0
"""A connection whose TLS handshake takes longer is closed."""


class CertificateError(ValueError):
    """A certificate and key that cannot be used; the message names the flags and files, and what to change."""


class Certificate:
    """A certificate chain and its key from two PEM files. ``context`` serves the newest valid pair, from TLS 1.2 on."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files. Raises CertificateError."""
        self._certificate = certificate
        self._key = key
        self._contents = self._read()
        self._newest = self.context = self._load_context()
        self.context.sni_callback = self._choose

    async def follow(self, refused: Callable[[], None]) -> None:
        """Check the files each PERIOD, until cancelled. ``refused`` is called for each version that cannot be used;
        the previous pair then stays in use."""
        while True:
            await asyncio.sleep(PERIOD)
            try:
                await asyncio.to_thread(self._check_files)
            except CertificateError as error:
                _log.error("certificate refused; the one in force stays", reason=str(error))
                refused()

    def _check_files(self) -> None:
        """Load the files if they changed. Raises CertificateError, once for each version."""
        failure: CertificateError | None = None
        try:
            seen = self._read()
        except CertificateError as error:
            seen, failure = str(error).encode(), error
        if seen == self._contents:
            return
        self._contents = seen
        if failure is not None:
            raise failure
        self._newest = self._load_context()
        _log.info("certificate reloaded", file=str(self._certificate))

    def _read(self) -> bytes:
        try:
            return self._certificate.read_bytes() + b"\0" + self._key.read_bytes()
        except OSError as error:
            raise CertificateError(f"{self._where}: {error.filename} cannot be read: {error.strerror}") from error

    def _load_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # a key with a passphrase is refused; without `password`, OpenSSL would prompt on the terminal
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            raise CertificateError(f"{self._where}: {_explain(error)}") from error
        except OSError as error:
            raise CertificateError(f"{self._where}: {error.strerror or error}") from error
        return context

    @property
    def _where(self) -> str:
        return f"--tls-cert-file={self._certificate} --tls-private-key-file={self._key}"

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Set the newest certificate for a connection. OpenSSL calls this for every handshake, also without SNI."""
        connection.context = self._newest


def _explain(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not the certificate's; give both of one pair"
    return (
        "no certificate in PEM with its key, unencrypted, can be read from them"
        f" ({error.reason or error}); write the certificate, then its chain, and the key as PEM files"
    )
