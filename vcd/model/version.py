"""The program's version: part of every session's record."""

__version__ = "0.1.0"
