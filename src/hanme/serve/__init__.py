"""A server for finished runs: the API by which programs ask, and the page for people."""
