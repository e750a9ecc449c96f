"""Explanations from a log: of jobs, sessions, queues, evictions and orders; and which change would have helped."""
