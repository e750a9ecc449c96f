"""Replicas of one log: who leads serves it as it grows, the others follow."""
