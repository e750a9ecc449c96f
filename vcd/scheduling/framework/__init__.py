"""Plugins: what they are, the points at which they are asked, and how their answers become one."""
