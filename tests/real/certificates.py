"""The certificates and keys of a cluster: an authority of its own, who serves, who asks."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates into ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("vcd-tests", ())
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        made = builder.sign(self._key, hashes.SHA256())
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    @property
    def bundle(self) -> str:
        """The authority's certificate as a webhook's configuration has it."""
        return base64.b64encode(self.certificate.read_bytes()).decode()

    def issue(self, name: str, *organizations: str) -> Pair:
        """A certificate for ``name`` (of these groups), good for serving on loopback and for asking alike."""
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        builder = self._builder(_name(name, organizations), key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        made = builder.add_extension(_usage(signs=False), critical=True).sign(self._key, hashes.SHA256())
        stem = name.replace(":", "-")
        pair = Pair(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(_pem(key))
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - VALID).not_valid_after(now + VALID)


def signing_key(path: Path) -> Path:
    """The key with which the API server signs the tokens of ServiceAccounts."""
    path.write_bytes(_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    return path


def _name(common: str, organizations: tuple[str, ...]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, key_encipherment=False, content_commitment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
