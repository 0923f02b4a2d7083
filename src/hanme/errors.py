"""The one exception a user's mistake raises."""


class HanmeError(ValueError):
    """A mistake in what the user gave: what was wrong, where, and what would be right.

    The message is one line. The command line prints it and exits with status 2.
    """


INTERRUPTED = "interrupted; continue train with --resume, others with the same command"
"""What is said after Ctrl-C."""
