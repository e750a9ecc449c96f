"""Network topology: the tree of HyperNodes, placement in domains, and evictions for groups that need one."""
