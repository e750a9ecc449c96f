"""Writers of cluster objects in place of Volcano's controllers, and the label of vcd's own pod."""
