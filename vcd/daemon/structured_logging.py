"""Configures structlog: lines on standard error, as JSON or in colours for a terminal, with secrets hidden.

It has nothing to do with the event log (`vcd.eventlog`).
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

DETAILED = 4
"""Lowest klog verbosity with details. It is not 3, which Volcano's chart sets for its per-job lines."""

_WORDS = 60
"""Leading characters of a message that identify its kind."""
_KINDS = 1000
"""The most kinds of lines that are counted."""

_HIDDEN = "(hidden)"
_SECRET_KEYS = re.compile(r"token|password|passwd|secret|authorization|credential|api_?key|private_?key", re.IGNORECASE)
_SECRET_TEXTS = re.compile(
    r"(?P<scheme>\b(?:Bearer|Basic)\s+)[\w.~+/=-]+"
    r"|(?P<url>://[^\s/@:]*:)[^\s/@]+(?=@)"
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL | re.IGNORECASE,
)


def configure(log_format: str = "auto", verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's lines to ``stream`` (standard error unless given).

    ``log_format`` is auto, json or console, where auto is console on a terminal; ``verbosity`` is klog's ``-v``.
    """
    out = sys.stderr if stream is None else stream
    console = log_format == "console" or (log_format == "auto" and out.isatty())
    level = level_of(verbosity)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: Processor = structlog.processors.JSONRenderer()
    if console:
        # the traceback is already text here, after secrets were removed from it
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
    last: list[Processor] = [structlog.processors.format_exc_info, hide_secrets, renderer]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,  # loggers are made at import, before this is called
    )
    _take_over_standard_library(out, level, shared, last)


def level_of(verbosity: int) -> int:
    """Return the log level for a klog verbosity: debug from 4 on, warning below 0, else info."""
    if verbosity < 0:
        return logging.WARNING
    return logging.DEBUG if verbosity >= DETAILED else logging.INFO


def hide_secrets(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove credentials from a line: values of keys that name secrets, and text that looks like a credential."""
    for key, value in event.items():
        event[key] = _HIDDEN if _SECRET_KEYS.search(key) else _without_secrets(value)
    return event


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET_TEXTS.sub(lambda found: f"{found['scheme'] or found['url'] or ''}{_HIDDEN}", value)
    if isinstance(value, dict):
        return {
            key: _HIDDEN if _SECRET_KEYS.search(str(key)) else _without_secrets(part) for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float) else _without_secrets(str(value))


class Repeats(logging.Filter):
    """Passes a few lines of one kind per period, and appends the number of suppressed lines to the next one.

    A library may write a traceback for each incoming connection. Lines are of one kind if they have the same place in
    the code and the same message before formatting.
    """

    def __init__(self, few: int = 5, period: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._few = few
        self._period = period
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line."""
        kind = (record.name, record.lineno, str(record.msg)[:_WORDS])
        now = self._clock()
        begun, count = self._kinds.get(kind, (now, 0))
        if now - begun >= self._period:
            if count > self._few:
                record.msg = f"{record.msg} ({count - self._few} more lines like this one in the last period)"
            begun, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= _KINDS:
            self._kinds.clear()
        self._kinds[kind] = (begun, count + 1)
        return count < self._few


def _take_over_standard_library(out: TextIO, level: int, shared: list[Processor], last: list[Processor]) -> None:
    """Write lines of libraries (asyncio, aiohttp) in the same format; below warning only at detailed verbosity."""
    handler = logging.StreamHandler(out)
    handler.addFilter(Repeats())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if level == logging.DEBUG else logging.WARNING)
