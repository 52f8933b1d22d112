"""Prints the means as a table, by a package of the lock file: table.py means.json"""

import json
import sys

from tabulate import tabulate

with open(sys.argv[1]) as f:
    print(tabulate(json.load(f).items(), headers=["field", "tons"]))
