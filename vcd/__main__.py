"""``python -m vcd``."""

from vcd.cli import main

main()
