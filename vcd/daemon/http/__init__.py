"""The HTTP endpoints for metrics and probes, and the authorization for a replica's ports."""
