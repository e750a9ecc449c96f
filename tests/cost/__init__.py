"""What a session costs, counted: calls of vcd's functions for each shape of the benchmarks, at n and at 2n."""
