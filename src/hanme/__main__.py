"""The command line as a module: ``python -m hanme``, ``torchrun -m hanme``."""

import os

if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun may be killed; its processes end with it
    import hanme.common.orphan  # noqa: F401

from hanme.cli import main

main()
