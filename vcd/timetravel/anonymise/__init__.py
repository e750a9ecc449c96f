"""Anonymised logs: the same history, sessions and outcomes, with replaced names."""
