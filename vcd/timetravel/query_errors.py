"""Errors of queries to a log, in addition to `LogError`."""

from __future__ import annotations


class NotFound(LookupError):
    """No job, pod, queue or session has the name or number, or several have; the message suggests existing ones."""
