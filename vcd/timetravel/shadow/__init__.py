"""Compare what a shadow decided with what the active scheduler did."""
