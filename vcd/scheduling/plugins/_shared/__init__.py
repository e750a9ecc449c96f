"""What several plugins need."""
