"""Write SQL, and turn messages of DuckDB into one line."""

from __future__ import annotations

import re

import duckdb

from hanme.errors import HanmeError

# What DuckDB says, and what it means; {0} and {1} are the groups, {flat} is the message.
MESSAGES = (
    (
        r"Invalid unicode|not [\w-]+ encoded",
        "the text is not in the encoding it is read in (default: utf-8); save it as UTF-8, for "
        "example with iconv -f cp1252 -t utf-8",
    ),
    (r"Expected Number of Columns: (\d+) Found: (\d+)", "{1} cells, but the header has {0}"),
    (
        r"Failed to parse format specifier (.*?):",
        "{0!r} is not a format of dates; expected one such as %Y-%m-%d",
    ),
    (r"unterminated quote", "a quote is not closed"),
    (
        r"Cannot access file|external access",
        "a query reads only the files that it names, as FROM 'films.csv' ({flat:.120})",
    ),
    (r'Error when sniffing file "(?:[^"]*/)?([^"]*)"', "{0} is not CSV as graph.toml describes it"),
    (
        r"Out of Memory",
        "too large for the memory that DuckDB may use (1 GB): leave out columns or rows with "
        "query = in graph.toml, or in the file",
    ),
    (r"does not support a full read|Maximum line size", "the line is too long"),
)


WRITTEN_NUMBER = (
    r"^([<>≤≥~≈]=?)?\s*[-+]?\s*[$€£¥]?\s*(\d{{1,3}}({group}\d{{3}})+|\d+)({decimal}\d+)?"
    r"\s*[%$€£¥]?$"
)
"""A number as people write it: 1,234 or $5 or 12 % or <0.5."""


LARGEST = 3.4e38
"""Largest number in a cell: larger ones overflow in float32."""


def number_sql(cell: str, decimal: str = ".") -> str:
    """Return SQL for the number that a cell holds, as programs or as people write it.

    With a decimal comma, 1.234 is 1234, and 1,5 is 1.5.
    """
    group, point = (",", r"\.") if decimal == "." else (r"\.", ",")
    digits = f"regexp_replace({cell}, '[^0-9{decimal}+-]', '', 'g')"
    pattern = WRITTEN_NUMBER.format(group=group, decimal=point)
    written = f"CASE WHEN regexp_matches({cell}, '{pattern}') THEN {digits} END"
    if decimal == ",":
        return f"TRY_CAST(replace({written}, ',', '.') AS DOUBLE)"
    return f"coalesce(TRY_CAST({cell} AS DOUBLE), TRY_CAST({written} AS DOUBLE))"


EXACT = 2**53
"""Largest whole number up to which a column of DOUBLE holds every one."""


def text_sql(cell: str, floating: bool) -> str:
    """Return SQL for a cell as text; a whole number in a `floating` column is 3, not 3.0.

    pandas and SQLite's REAL store ids as such, and the table they refer to has integers.
    """
    text, number = f"CAST({cell} AS VARCHAR)", f"TRY_CAST({cell} AS DOUBLE)"
    if not floating:
        return text
    whole = f"{number} = trunc({number}) AND abs({number}) <= {EXACT}"
    return f"CASE WHEN {whole} THEN CAST({number}::BIGINT AS VARCHAR) ELSE {text} END"


def quoted(text: str) -> str:
    """Return a text as a string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def check_query(query: str, where: str, expected: str = "one SELECT statement") -> None:
    """Refuse anything but a single SELECT."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise HanmeError(translate(str(error), where, "query")) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise HanmeError(f"{where}: it must be {expected}")


def translate(message: str, title: str, form: str) -> str:
    """Turn a message of DuckDB about a file or query into one line that names the place."""
    flat = re.sub(r" LINE \d+: .*", "", " ".join(message.split()))
    line = re.search(r"CSV Error on Line: (\d+)", flat)
    place = f"{title} line {line[1]}" if line else title
    for pattern, meaning in MESSAGES:
        if match := re.search(pattern, flat):
            return f"{place}: {meaning.format(*match.groups(), flat=flat)}"
    if line:
        flat = re.sub(r"^.*?Original Line: ", "", flat)
        return f"{place}: not CSV ({flat.split('Possible')[0].strip()[:160]})"
    return f"{place}: {'DuckDB' if form == 'query' else f'not {form}'} ({flat[:240]})"
