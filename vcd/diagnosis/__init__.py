"""What keeps a waiting job from starting: its reasons, counted over its wait and made one cause."""
