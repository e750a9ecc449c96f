"""Identifies replicas to each other: a self-signed certificate for the server, a ServiceAccount token for the follower.

The Lease states the certificate's fingerprint. Only a subject that may write the Lease can state one, so no certificate
authority is needed. A follower's token has audience vcd, so a leader cannot use it at the API server.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urldefrag, urlsplit

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vcd.daemon.replicas.replica_protocol import PATH

AUDIENCE = "vcd"
"""The audience of a follower's token."""
_FINGERPRINT = "sha256="


class Address(NamedTuple):
    """The URL of a served log, and the SHA-256 fingerprint of the server's certificate."""

    url: str
    fingerprint: bytes

    @classmethod
    def of(cls, host: str, port: int, fingerprint: bytes) -> Address:
        """Return the address for a host name or IP address."""
        shown = f"[{host}]" if ":" in host else host
        return cls(f"https://{shown}:{port}{PATH}", fingerprint)

    @classmethod
    def read(cls, text: str) -> Address:
        """Parse the text that ``str`` returns. Raises ValueError."""
        url, fragment = urldefrag(text)
        if not url.startswith("https://") or not urlsplit(url).hostname or not fragment.startswith(_FINGERPRINT):
            raise ValueError(f"{text[:200]!r} is not an address of a log with a fingerprint")
        fingerprint = bytes.fromhex(fragment.removeprefix(_FINGERPRINT))
        if len(fingerprint) != sha256().digest_size:
            raise ValueError(f"{text[:200]!r} has no SHA-256 fingerprint")
        _ = urlsplit(url).port  # raises ValueError for one out of range
        return cls(url, fingerprint)

    def __str__(self) -> str:
        return f"{self.url}#{_FINGERPRINT}{self.fingerprint.hex()}"

    def pinned(self) -> aiohttp.Fingerprint:
        """Return the fingerprint as aiohttp checks it."""
        return aiohttp.Fingerprint(self.fingerprint)


def certificate(name: str, host: str, now: datetime.datetime) -> tuple[ssl.SSLContext, bytes]:
    """Return a TLS context with a new key and self-signed certificate, and the certificate's fingerprint."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64] or "vcd")])
    made = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with TemporaryDirectory() as folder:  # ssl takes certificates from files only
        file = Path(folder) / "replica.pem"
        file.touch(mode=0o600)
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(file)
    return context, sha256(made.public_bytes(serialization.Encoding.DER)).digest()


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.encode("idna").decode())
