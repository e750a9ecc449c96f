"""The network topology of a session's nodes: domains of nodes that are close to each other.

Nothing here knows actions or plugins. A domain is a mask over the nodes, its tier an integer.
"""
