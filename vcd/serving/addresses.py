"""Addresses that cannot be listened on."""

from __future__ import annotations

import errno
from typing import Self


class AddressError(OSError):
    """An address that cannot be listened on; the message names its flag and says what to change."""

    def __str__(self) -> str:
        """The message alone, without the number that OSError puts before it."""
        return str(self.strerror)

    @classmethod
    def of(cls, flag: str, address: str, error: OSError) -> Self:
        """What is told of an address, by the flag that gave it."""
        return cls(error.errno, f"{flag}={address}: {_explained(error)}")


def _explained(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "address already in use; end who has it, or give another address"
    if error.errno == errno.EACCES:
        return "permission denied; ports below 1024 are for root"
    return error.strerror or str(error)
