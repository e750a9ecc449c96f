"""Plugins and actions: base classes, extension points, and how the answers of several plugins are combined."""
