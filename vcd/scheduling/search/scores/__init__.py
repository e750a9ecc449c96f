"""Ratings of nodes, one or a few related ones a file, in vector form."""
