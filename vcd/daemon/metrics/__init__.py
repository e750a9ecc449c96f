"""Metrics for Prometheus: declarations, values, and the text of one scrape."""
