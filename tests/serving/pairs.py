"""Certificates with their keys for tests: self-signed, for localhost and 127.0.0.1; they protect nothing."""

from __future__ import annotations

import ssl
from pathlib import Path

CERTIFICATES = {
    "one": """\
-----BEGIN CERTIFICATE-----
MIIBjjCCATWgAwIBAgIUIpGtqSfODl0or5we2h8LwfWMD/AwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb25lMCAXDTI2MTEyNDA3MTQzOFoYDzIxMjYxMDMxMDcxNDM4
WjAOMQwwCgYDVQQDDANvbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQD9IKv
pYi887GVkTB5/XBhfUJxR2kOCL03xT0naogxe+fGlHsdfLQdKy/8PHregqRNVVeO
6WkMO1nuo89GWXw9o28wbTAdBgNVHQ4EFgQUPxYT5AtsUj4ocB3xoMrverx9A0sw
HwYDVR0jBBgwFoAUPxYT5AtsUj4ocB3xoMrverx9A0swDwYDVR0TAQH/BAUwAwEB
/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZIzj0EAwIDRwAwRAIg
H9lHnmvsDmhmPY2Mt4xUtZtKbhZ+JxFcZANtCpkm5xQCICPZH5BYuapm/yxjRosR
t3LYu+ELm89SzLI2T50pKibD
-----END CERTIFICATE-----
""",
    "two": """\
-----BEGIN CERTIFICATE-----
MIIBjzCCATWgAwIBAgIUAXS8hGv2ZrlkPIxVCre+4FQ+dOQwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDdHdvMCAXDTI2MTEyNDA3MTQzOFoYDzIxMjYxMDMxMDcxNDM4
WjAOMQwwCgYDVQQDDAN0d28wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASMCWfW
e19KfC9DlOaH1SfOnok7nXb8p/ZDeZAnYqMl6fJeRfsHkWMd/3+K36Kvgs4wXucW
XNsy4nYhkvunbm2Vo28wbTAdBgNVHQ4EFgQU3TyrTTUMM1JEJj6MW/+DyX8oOSkw
HwYDVR0jBBgwFoAU3TyrTTUMM1JEJj6MW/+DyX8oOSkwDwYDVR0TAQH/BAUwAwEB
/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZIzj0EAwIDSAAwRQIh
AM8h0kuIO0G9Ni7eHCAxP6MjFdcVmTHo+2ZE6Co66tKPAiAWSAbX4B/E1vBFeMV4
Talf7RMRmHS/n/v+p4koYTQuUQ==
-----END CERTIFICATE-----
""",
}
KEYS = {
    "one": """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgKlmC0O9cTy8ogAtc
MKzo8tM4J7774zonXOWBIaGR+x2hRANCAAQD9IKvpYi887GVkTB5/XBhfUJxR2kO
CL03xT0naogxe+fGlHsdfLQdKy/8PHregqRNVVeO6WkMO1nuo89GWXw9
-----END PRIVATE KEY-----
""",
    "two": """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg+dGce0yFwx8P5Uh3
o7ka7qynL3o27FC6Kcmiv/hH3kuhRANCAASMCWfWe19KfC9DlOaH1SfOnok7nXb8
p/ZDeZAnYqMl6fJeRfsHkWMd/3+K36Kvgs4wXucWXNsy4nYhkvunbm2V
-----END PRIVATE KEY-----
""",
    "locked": """\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,9A99FA89856523894773840269EC7AA1

aycYK29VzFnGV/3tbSmuIhE3FbCfV8Y2yCk4oxmueHebMKsykDZIFxHOzVKT5sz/
MnJDm/0HYxFZFVwspG2CjncUeVkRM7szF7tcQH+OiflyIVFwKONcaPmqS1C65pHq
MSeqQnRq3CylBSsV8tsZj+IYJn6/+0x9YYR4d8SNtVw=
-----END EC PRIVATE KEY-----
""",
}
"""Of the certificates, and the first once more with a passphrase."""


def write_pair(folder: Path, name: str, key: str = "") -> tuple[Path, Path]:
    """A certificate's and a key's file, put in the place of those that were there, as a volume's are; the key may be
    another one's."""
    paths = folder / "tls.crt", folder / "tls.key"
    for path, text in zip(paths, (CERTIFICATES[name], KEYS[key or name]), strict=True):
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)
    return paths


def name_of(certificate: bytes | None) -> str:
    """Which of the certificates a server showed, in DER."""
    (found,) = [name for name, text in CERTIFICATES.items() if ssl.PEM_cert_to_DER_cert(text) == certificate]
    return found


def trusting() -> ssl.SSLContext:
    """A client that takes any certificate: these are looked at, not believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
