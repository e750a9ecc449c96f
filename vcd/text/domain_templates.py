"""How many pods of a job a HyperNode takes: templates."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

DOMAINS: Final = Templates(
    {
        "takes": "{domain} (tier {tier}) {fits}",
        "takes held": "{domain} (tier {tier}) {fits}, held by {holders}",
        "takes first": "{domain} (tier {tier}) takes {fits} of {needs}",
        "takes first held": "{domain} (tier {tier}) takes {fits} of {needs}, held by {holders}",
    }
)
"""A HyperNode that is allowed."""
