"""Infer the schema of tables: profile columns, apply rules, write ``graph.toml``.

Each rule has one place: ``keys`` (ids and references), ``roles`` (nodes, links, target, label),
``relations``, ``infer`` (features); ``profile`` has what they are based on.
"""
