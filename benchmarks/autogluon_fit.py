"""Fit AutoGluon to a table of columns, in an environment of its own, as its pins are strict.

    python -m venv ag && ag/bin/pip install "autogluon.tabular[lightgbm,xgboost,catboost]"
    python benchmarks/own_tables.py players --autogluon ag/bin/python

Reads ``columns.csv`` of a folder (columns, ``target`` and ``known``), writes ``probabilities.csv``.
"""

import sys
from pathlib import Path

import pandas as pd
from autogluon.tabular import TabularPredictor

SECONDS = 120  # the time limit

folder = Path(sys.argv[1])
table = pd.read_csv(folder / "columns.csv")
known, x = table.pop("known"), table.drop(columns="target")
predictor = TabularPredictor("target", eval_metric="log_loss", path=folder / "model", verbosity=0)
predictor.fit(table[known], time_limit=SECONDS)
predictor.predict_proba(x).to_csv(folder / "probabilities.csv", index=False)
