"""The command line as a module: ``python -m hanme``, ``torchrun -m hanme``."""

from hanme.cli import main

main()
