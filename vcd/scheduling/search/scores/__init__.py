"""Node scores in vector form, one or a few related ones a module."""
