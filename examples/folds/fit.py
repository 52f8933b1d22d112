"""Fits a line by gradient descent to all points but those of a fold, and measures it on the fold."""
import csv, json, os

rows = [(float(r["x"]), float(r["y"])) for r in csv.DictReader(open(os.environ["points"]))]
first, last = int(os.environ["from"]), int(os.environ["to"])
held, rest = rows[first:last], rows[:first] + rows[last:]
slope = shift = 0.0
with open(os.environ["curve"], "w") as curve:
    curve.write("round,error\n")
    for n in range(int(os.environ["rounds"])):
        errors = [(slope * x + shift - y, x) for x, y in rest]
        slope -= float(os.environ["rate"]) * sum(e * x for e, x in errors) / len(errors)
        shift -= float(os.environ["rate"]) * sum(e for e, _ in errors) / len(errors)
        if n % 20 == 0:
            curve.write(f"{n},{sum(e * e for e, _ in errors) / len(errors):.4f}\n")
error = sum((slope * x + shift - y) ** 2 for x, y in held) / len(held)
json.dump({"error": round(error, 4), "slope": round(slope, 4)}, open(os.environ["scores"], "w"))
