"""Turn Sphinx's markup in docstrings, such as :class:`~hanme.Graph`, into links: a hook of mkdocs.

Docstrings are written for readers of PyTorch and PyG, whose tools know this markup.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

ROLE = re.compile(r":(?:class|func|meth|mod|data|obj|attr):<code>([^<]*)</code>")
LINK = re.compile(r"<code>([^<]*?)\s+&lt;(https?://[^<]*?)&gt;</code>_")
MATH = re.compile(r"<p>\.\. math::\s*(.*?)</p>", re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Replace the markup in a page; a reference to something undocumented stays plain code."""
    html = ROLE.sub(_reference, html).replace(":math:<code>", "<code>")
    html = LINK.sub(r'<a href="\2">\1</a>', html)
    return MATH.sub(r"<pre><code>\1</code></pre>", html)


def _reference(match: re.Match[str]) -> str:
    title, _, target = match[1].partition(" &lt;")
    target = target.removesuffix("&gt;") or title.lstrip("~")
    shown = target.rpartition(".")[2] if title.startswith("~") else title
    return f'<autoref identifier="{escape(target)}" optional><code>{shown}</code></autoref>'
