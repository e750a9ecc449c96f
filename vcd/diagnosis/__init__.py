"""Diagnoses of waiting jobs: from a job's reasons, and the nodes and limits at a session, to one cause with
quantities."""
