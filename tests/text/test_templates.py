"""Sentences from templates by code: the variant that flags select, and facts that only some templates need."""

from __future__ import annotations

import pytest

from vcd.text.templates import Templates

WORDS = Templates(
    {
        "bound": "{session} bound {pod}",
        "bound shadow": "{session} would have bound {pod}",
        "bound shadow many": "{session} would have bound {count} pods",
        "bound many": "{session} bound {count} pods",
    }
)
FACTS = {"session": "session 3", "pod": "a", "count": "2"}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "session 3 bound a"),
        (("shadow",), "session 3 would have bound a"),
        (("shadow", "many"), "session 3 would have bound 2 pods"),
        (("", "many"), "session 3 bound 2 pods"),
        (("pod", "many"), "session 3 bound 2 pods"),
    ],
)
def test_flags_select_a_variant_and_others_have_no_effect(flags: tuple[str, ...], sentence: str) -> None:
    assert WORDS.sentence("bound", FACTS, flags) == sentence


def test_a_code_without_a_template_and_a_missing_fact_are_errors() -> None:
    with pytest.raises(KeyError, match="dropped"):
        WORDS.sentence("dropped", FACTS)
    with pytest.raises(KeyError, match="pod"):
        WORDS.sentence("bound", {"session": "session 3"})
