"""A table of a report, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Table(NamedTuple):
    """A table of the report; ``title`` opens a section of the Markdown."""

    title: str
    about: str
    heads: list[str]
    rows: list[list[str]]

    def markdown(self) -> list[str]:
        """Return the lines of the table as Markdown."""
        lines = [f"| {' | '.join(cells)} |" for cells in (self.heads, *self.rows)]
        return [lines[0], "| --- " + "| ---: " * (len(self.heads) - 1) + "|", *lines[1:]]

    def latex(self) -> list[str]:
        """Return the lines of the table as LaTeX, with the rules of the package booktabs."""
        lines = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (self.heads, *self.rows)]
        columns = "l" + "r" * (len(self.heads) - 1)
        top = [f"% {self.title}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0]]
        return [*top, r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", ""]


def number(figure: Mapping[str, Any], average: str) -> str:
    """Return a published score with all digits that are recorded, and its ± if it has one."""
    if average not in figure:
        return "–"
    spread = figure.get(f"{average}_std")
    return f"{figure[average]}" if spread is None else f"{figure[average]} ± {spread}"


def _escaped(text: str) -> str:
    """Return a text for LaTeX."""
    for special in "&%$#_{}":
        text = text.replace(special, f"\\{special}")
    return text.replace("±", r"$\pm$").replace("−", "$-$").replace("–", "--")
