"""The one exception a user's mistake raises, and what several messages share."""

from collections.abc import Iterable


class HanmeError(ValueError):
    """A mistake in what the user gave: what was wrong, where, and what would be right.

    The message is one line. The command line prints it and exits with status 2.
    """


def check_choice(name: str, value: str, options: Iterable[str]) -> None:
    """Refuse a value that is none of some options."""
    known = list(options)
    if value not in known:
        raise HanmeError(f"Expected `{name}` to be one of {', '.join(known)}, but got {value!r}")


def one_line(error: object, most: int = 200) -> str:
    """Return what an error says on one line, cut where it is long."""
    return " ".join(str(error).split())[:most]


INTERRUPTED = "interrupted; continue train with --resume, others with the same command"
"""What is said after Ctrl-C."""
