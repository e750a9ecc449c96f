"""Count how often functions of vcd are called.

Only Python functions whose code is in the package count, so that the count does not depend on how Python or a library
does its own work. Comprehensions do not count either: Python 3.12 and later run them within their function.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import vcd

_PACKAGE = str(Path(vcd.__file__).parent)
_INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})

Calls = Counter[str]
"""Calls by function, as in ``scheduling/decide.py:decide``."""


def calls_of(run: Callable[[], object]) -> Calls:
    """Return the calls that ``run`` makes on this thread; each value that a generator yields is one more.

    The garbage collector is off meanwhile: it runs finalizers at moments that depend on what ran before.
    """
    by_code: dict[CodeType, int] = {}

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            by_code[code] = by_code.get(code, 0) + 1

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    calls: Calls = Counter()
    for code, times in by_code.items():
        if code.co_filename.startswith(_PACKAGE) and code.co_name not in _INLINED:
            calls[f"{Path(code.co_filename).relative_to(_PACKAGE).as_posix()}:{code.co_qualname}"] += times
    return calls
