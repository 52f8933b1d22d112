"""Reads results of each kind; e3.yaml beside it makes them."""

import math
import os
import sys
from pathlib import Path

import e3

try:
    import pandas
except ImportError:
    pandas = None


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def fails(error, call, *words):
    try:
        call()
    except error as e:
        for word in words:
            assert word in str(e), f"{e!r} lacks {word!r}"
        return e
    raise AssertionError(f"no {error.__name__}")


same(e3.get("shop.rate"), 0.5)
same(e3.get("shop.names"), {"list": [1, "two", None], "on": True})
same(e3.get("shop.scores.model"), b"\x00\xff")
same(e3.get("shop.rate", repo=Path(".").absolute() / ".e3"), 0.5)
folder = e3.get("shop.site")
same((folder / "deep" / "page.html").read_text(), "page\n")
same(e3.path("shop.scores.model").read_bytes(), b"\x00\xff")
same(e3.path("shop.scores.model", "model.bin"), Path("model.bin"))
same(e3.path("shop.scores.model", Path("model.bin")).read_bytes(), b"\x00\xff")

sales, tabs, rows, values = e3.table("shop.sales"), e3.table("shop.tabs"), e3.table("shop.rows"), e3.compare("shop")
if pandas is None:
    same(sales, [{"day": "1", "n": "2", "note": "a, b"}, {"day": "2", "n": "3", "note": ""}])
    same(tabs, [{"day": "1", "n": "2"}])
    same(rows[0], {"a": 1})
    assert math.isnan(rows[1]["a"]), rows
else:
    same(sales["n"].tolist(), [2, 3])
    same(e3.table("shop.sales", index_col="day").loc[1, "note"], "a, b")
    same(list(tabs.columns), ["day", "n"])
    assert math.isnan(rows["a"][1]), rows
    values = values.to_dict("records")
same((len(values), values[0]["side"], values[0]["rate"], values[0]["acc"]), (1, "shop", 0.5, 0.5))
assert math.isnan(values[0]["loss"]) and values[0]["seconds"] >= 0, values

same(e3.call("list", "shop")["workspace"], "shop")
again = e3.call("start", "-f", "e3.yaml")
assert again[-1]["type"] == "run.completed", again

error = fails(e3.Error, lambda: e3.get("shop.nothing"), "nothing")
assert error.code != 0 and not str(error).endswith("\n"), error
fails(e3.Error, lambda: e3.get("--help"))
fails(e3.Error, lambda: e3.get("shop.rate", repo="nowhere"), "nowhere")
fails(TypeError, lambda: e3.table("shop.site"), "folder")
os.environ["PATH"] = "/nowhere"
same(e3.get("shop.rate"), 0.5)  # the program beside Python is found without the PATH
print("all is well", file=sys.stdout)
