"""Prints a table of a CSV file."""
import csv, sys
from tabulate import tabulate

print(tabulate(csv.reader(open(sys.argv[1])), headers="firstrow"))
