"""An out-of-tree action and plugin for vcd; docs/extending.md explains them."""
