"""A log without names: the same history, sessions and outcomes, with other words for all that somebody named."""
