"""What a question to a log can meet beside `LogError`."""

from __future__ import annotations


class NotFound(LookupError):
    """No job, pod, queue or session has the name or number, or several have; the message tells which there are."""
