"""Tests of nodes whose answers nothing that is placed changes."""

from __future__ import annotations

from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.parts import Predicate
from vcd.scheduling.session.session import Session


class HasFixedTests(Plugin):
    """Base of the plugin whose tests of nodes' cordon, labels and taints others ask, too."""

    def fixed_tests(self, session: Session) -> list[Predicate]:
        """Those of the tests that are on; may be asked for before ``open``."""
        raise NotImplementedError
