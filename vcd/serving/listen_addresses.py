"""Errors of addresses that a server cannot listen on, in words for users."""

from __future__ import annotations

import errno
from typing import Self


class AddressError(OSError):
    """A server cannot listen on an address; the message names the flag and what to change."""

    def __str__(self) -> str:
        """Return the message without the error number of OSError."""
        return str(self.strerror)

    @classmethod
    def of(cls, flag: str, address: str, error: OSError) -> Self:
        """Return the error for an address, named by its flag."""
        return cls(error.errno, f"{flag}={address}: {_explain(error)}")


def _explain(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "address already in use; end that program, or give another address"
    if error.errno == errno.EACCES:
        return "permission denied; ports below 1024 are for root"
    return error.strerror or str(error)
