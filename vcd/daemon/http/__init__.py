"""The HTTP endpoints for metrics and probes, and who may use the ports of a replica."""
