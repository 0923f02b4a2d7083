"""A server for finished runs: the API by which programs ask, and the page for people."""

from hanme.serve.server import serve

__all__ = ["serve"]
