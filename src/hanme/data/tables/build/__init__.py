"""Build a graph from rows, in memory or on disk."""
