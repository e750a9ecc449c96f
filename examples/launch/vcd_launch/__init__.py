"""An action and a plugin for vcd that do not come with it; docs/extending.md walks through them."""
