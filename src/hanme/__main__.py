"""Run the command line with ``python -m hanme``."""

from hanme.cli import main

if __name__ == "__main__":
    main()
