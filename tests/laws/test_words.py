"""Docstrings and comments use the terms of Kubernetes and Volcano, not everyday words that stand for any of them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

VCD = Path(__file__).resolve().parents[2] / "vcd"
_VAGUE = re.compile(
    r"\b(told|tells?|said|says|shown|asked|asks|asker|kept(?!-back)|room|alike|likeness|nobody|somebody|whom|whoever"
    r"|mends?|mended|dials?|beside|meanwhile|anew|ours|stranger's|taken back|let in|let go|stands still|speaks|be it"
    r"|minds|by and by)\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(`+)[^`]*?\1")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings, the strings below fields, and the comments of a module, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def vague_words(source: str) -> list[str]:
    if not _VAGUE.search(source):  # to find the comments of a module takes long
        return []
    return [f"{line}: {word}" for line, text in texts(source) for word in _VAGUE.findall(_QUOTED.sub("", text))]


def test_docstrings_and_comments_have_no_vague_word() -> None:
    found = {str(path.relative_to(VCD)): vague_words(path.read_text()) for path in sorted(VCD.rglob("*.py"))}
    assert {path: words for path, words in found.items() if words} == {}


def test_a_vague_word_is_found_in_each_kind_of_text() -> None:
    source = '"""Who is told."""\nx = 1  # kept\n"""Seconds, ``asked``."""\ny = "said"\n'
    assert vague_words(source) == ["1: told", "2: kept"]
