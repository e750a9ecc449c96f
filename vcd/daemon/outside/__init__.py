"""Queries to servers other than the API server: extenders and monitoring systems."""
