"""Parity with Volcano: the oracle's cases, run by any implementation."""
