"""A report: the overview of a run and chosen nodes as one HTML file that needs nothing else.

The file holds the page's own scripts and the data they would ask the server for. Its policy lets
nothing else run and nothing be loaded: the one script and the one style sheet are allowed by their
hashes. Data is JSON in which no ``<`` is left, so no name can end the element that holds it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path

from hanme import __version__
from hanme.common.files import replacing
from hanme.errors import HanmeError
from hanme.serve.overview import overview
from hanme.serve.schemas import Question
from hanme.serve.served import Json, ServedRun

STATIC = Path(__file__).parent / "static"

MOST_INSTANCES = 24
"""Maximum number of instances in a report: what its pictures and lists can show."""

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const) (\w+)", re.MULTILINE)
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>hanme report</title>
<style>{style}</style>
</head>
<body>
<main id="main"><p>This report needs JavaScript to draw itself.</p></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def check_report(path: Path) -> None:
    """Refuse to write a report under a name that a browser would not open."""
    if path.suffix.lower() != ".html":
        raise HanmeError(f"{path}: a report's name ends with .html")


def write_report(served: ServedRun, path: Path, nodes: Sequence[str | int] = ()) -> None:
    """Write a report of a run with explanations of some nodes, each by id, else name, else number.

    A file that is there is replaced once the new one is whole.
    """
    check_report(path)
    numbers = dict.fromkeys(served.graph.targets.find(node) for node in nodes)
    data = {
        "version": __version__,
        "run": served.info(),
        "overview": overview(served),
        "nodes": [_node(served, number) for number in numbers],
    }
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    script, style = bundle("report.js"), _static("style.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    with replacing(path) as temporary:
        page = _PAGE.format(policy=policy, style=style, data=text, script=script)
        temporary.write_text(page, encoding="utf-8")


def _node(served: ServedRun, number: int) -> Json:
    """Return a node's prediction and, if the model has one, its explanation."""
    row = served.table.row(number).model_dump()
    if served.explainer is None:
        return {"prediction": row, "explanation": None}
    return {
        "prediction": row,
        "explanation": served.explain(number, Question(instances=MOST_INSTANCES)).model_dump(),
    }


def bundle(entry: str) -> str:
    """Make one script of a module of the page and of all that it imports.

    Each module becomes a function that returns what it exports.
    """
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        if name in modules:
            return
        text, folder = _static(name), posixpath.dirname(name)

        def named(found: re.Match[str]) -> str:
            other = posixpath.normpath(posixpath.join(folder, found[2]))
            add(other)
            return f'const {found[1]} = modules["{other}"];'

        body = _IMPORT.sub(named, text)
        exports = ", ".join(_EXPORT.findall(body))
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        modules[name] = f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();\n'

    add(entry)
    return '"use strict";\nconst modules = {};\n' + "".join(modules.values())


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return what a policy allows a text by."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
