"""``vcd run``: one scheduler replica as a process.

`service.py` constructs the components and runs them. The packages here hold one concern each; import-linter orders them
(`pyproject.toml`, contract "daemon-packages"), and `docs/architecture.md` describes how they work together.
"""
