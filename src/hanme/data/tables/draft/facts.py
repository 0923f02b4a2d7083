"""Tell a table of facts: a head, a relation and a tail, such as a film, who made it, a person."""

from __future__ import annotations

from hanme.data.tables.draft.profile import ColumnProfile, Sheet
from hanme.data.tables.read.reader import Reader, Table

HEADS = ("head", "h", "subject", "subj", "s", "source", "from")
FACTS = ("relation", "rel", "r", "predicate", "pred", "p", "property", "type", "edge")
TAILS = ("tail", "t", "object", "obj", "o", "target", "to")


def triples(sheet: Sheet) -> tuple[ColumnProfile, ColumnProfile, ColumnProfile] | None:
    """Return the columns of head, relation and tail of a table of facts."""
    if len(sheet.columns) > 4:
        return None
    found = [
        next((c for c in sheet.columns if c.plain.lower() in words), None)
        for words in (HEADS, FACTS, TAILS)
    ]
    head, relation, tail = found
    if head is None or relation is None or tail is None or len({id(c) for c in found}) < 3:
        return None
    few = relation.distinct <= max(2, relation.filled // 2) and relation.distinct <= 1000
    return (head, relation, tail) if few else None


def at_target(
    reader: Reader, sheet: Sheet, target: Table, column: ColumnProfile
) -> tuple[int, int, int]:
    """Count the facts that have a target at both ends, at the head alone, at the tail alone."""
    assert sheet.triples is not None
    ids = f"(SELECT {column.alias} FROM {target.sql})"
    head, tail = (f"coalesce({sheet.triples[i].alias} IN {ids}, false)" for i in (0, 2))
    ((both, heads, tails),) = reader.rows(
        "SELECT count(*) FILTER (head AND tail), count(*) FILTER (head AND NOT tail), "
        "count(*) FILTER (tail AND NOT head) "
        f"FROM (SELECT {head} AS head, {tail} AS tail FROM {sheet.table.sql})"
    )
    return both, heads, tails
