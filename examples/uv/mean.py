"""Writes the mean yield of each field: mean.py yields.csv means.json"""

import csv
import json
import sys

tons = {}
with open(sys.argv[1]) as f:
    for row in csv.DictReader(f):
        tons.setdefault(row["field"], []).append(float(row["tons"]))
with open(sys.argv[2], "w") as f:
    json.dump({field: round(sum(t) / len(t), 2) for field, t in tons.items()}, f)
