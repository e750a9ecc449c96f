"""The command ``vcd``, with what a test does to its process.

``E2E_RETENTION`` (seconds) is how often a log that is followed is held to its bounds, which are then ``KEPT``.
``E2E_FILE_LIMIT`` (bytes) is the size beyond which no file can grow, as a full disk.
"""

from __future__ import annotations

import dataclasses
import os
import resource

from vcd import cli
from vcd.daemon.reader import log_copy

KEPT = 3 * 10**9
"""Nanoseconds: who tells of new events looks five times a second, and must have had its turn."""


def main() -> None:
    """Run it."""
    if "E2E_RETENTION" in os.environ:
        parse = log_copy.parse_options
        log_copy.parse_options = lambda *given: dataclasses.replace(parse(*given), retention_age=KEPT)
        log_copy.HOUSEKEEPING = float(os.environ["E2E_RETENTION"])
    if "E2E_FILE_LIMIT" in os.environ:
        limit = int(os.environ["E2E_FILE_LIMIT"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    cli.main()
