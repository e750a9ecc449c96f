"""Sentences as templates by code, with variants by flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Templates(dict[str, str]):
    """Templates by code. The template of a variant has the code and its flags as key: ``bound shadow``."""

    def sentence(self, code: str, facts: Mapping[str, str], flags: Iterable[str] = ()) -> str:
        """Return the sentence of a code. Flags without a variant, and empty ones, have no effect."""
        key = code
        for flag in filter(None, flags):
            if f"{key} {flag}" in self:
                key = f"{key} {flag}"
        return self[key].format_map(facts)
