"""Infer the schema of tables: profile columns, apply rules, write ``graph.toml``.

Each rule has one place: ``keys`` (ids and references), ``roles`` (nodes, links, facts, target),
``labels``, ``features``, ``relations``; ``profile`` has what they are based on.
"""
