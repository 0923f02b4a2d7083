"""Helpers that know nothing of graphs: files, TOML, options, HTML, memory."""
