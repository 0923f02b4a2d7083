"""Many runs side by side: benchmarks, the paper's table, and the search for settings."""
