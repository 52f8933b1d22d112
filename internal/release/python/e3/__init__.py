"""Read results of e3 in Python. Each function calls the program e3, which this package puts on the PATH.

    import e3
    e3.get("shop.rate")              # a value: 0.1; a file: its bytes; a folder: the path of a copy
    e3.path("shop.model")            # a copy of a file or folder
    e3.table("shop.sales")           # a DataFrame where pandas is installed, else a list of dicts
    e3.compare("shop", "exp*")       # parameters and metrics, a row for each workspace
    e3.call("status", "shop")        # the answer of any command, as from --json

The repository is the nearest one, or that of E3_REPO; repo="folder" names another.
"""

import atexit
import csv
import io
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

__all__ = ["Error", "call", "compare", "get", "path", "table"]

PathLike = Union[str, "os.PathLike[str]"]


class Error(Exception):
    """A command of e3 failed. The text is e3's message; code is its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def _program() -> str:
    places = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    found = shutil.which("e3", path=places)
    if found is None:
        raise Error("the program e3 is not on the PATH", 127)
    return found


def _run(args: List[str]) -> bytes:
    done = subprocess.run([_program(), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        message = done.stderr.decode("utf-8", "replace").strip()
        raise Error(message or f"e3 {args[0]} ended with exit code {done.returncode}", done.returncode)
    return done.stdout


def _args(command: str, repo: Optional[PathLike], names: List[str], *flags: str) -> List[str]:
    return [command, *flags, "--", *([] if repo is None else [os.fspath(repo)]), *names]


def call(command: str, *args: str, repo: Optional[PathLike] = None) -> Any:
    """The answer of a command with --json: call("history", "shop"). Flags are arguments: call("plan", "shop", "--force").

    A command that prints one document a line, as "start" does, gives a list.
    """
    text = _run([command, "--json", *([] if repo is None else [os.fspath(repo)]), *args]).decode("utf-8")
    try:
        return json.loads(text) if text.strip() else None
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def get(name: str, *, repo: Optional[PathLike] = None) -> Any:
    """The content of a dataset, as "workspace.task", "workspace.task.output" or "workspace.input".

    A value is a value of Python, a file is bytes, and a folder is the path of a copy, as of path().
    """
    about = json.loads(_run(_args("get", repo, [name], "--json")))
    if about["kind"] == "value":
        return about["value"]
    if about["kind"] == "directory":
        return path(name, repo=repo)
    return _run(_args("get", repo, [name]))


def path(name: str, to: Optional[PathLike] = None, *, repo: Optional[PathLike] = None) -> Path:
    """The path of a copy of a dataset. Without to, it is a temporary copy that goes when Python ends.

    What is at to is replaced.
    """
    if to is None:
        folder = tempfile.mkdtemp(prefix="e3-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        to = Path(folder, "data")
    _run(_args("get", repo, [name], "--force", "--output=" + os.fspath(to)))
    return Path(to)


def table(name: str, *, repo: Optional[PathLike] = None, **options: Any) -> Any:
    """A dataset that is a table: CSV or TSV with a header, a list of objects in JSON, or Parquet.

    It is a DataFrame where pandas is installed, which gets the options: table("shop.sales", index_col=0). Without pandas
    it is a list of dicts, of texts in CSV and TSV.
    """
    data = get(name, repo=repo)
    if isinstance(data, Path):
        raise TypeError(f"{name} is a folder; read one of its files below e3.path({name!r})")
    if not isinstance(data, bytes):
        return _frame(data, options)
    if data[:4] == b"PAR1":
        import pandas

        return pandas.read_parquet(io.BytesIO(data), **options)
    text = data.decode("utf-8-sig")
    if text.lstrip()[:1] in ("[", "{"):
        return _frame(json.loads(text), options)
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    try:
        import pandas
    except ImportError:
        return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))
    return pandas.read_csv(io.StringIO(text), **{"sep": separator, **options})


def compare(*sides: str, repo: Optional[PathLike] = None) -> Any:
    """The table of "e3 compare": a row for each side, and for each item of a matrix that has metrics.

    A side is a workspace, a pattern or a run: compare("dev", "exp*", "dev@-1"). Columns are side, item, parameters, metrics
    and seconds.
    """
    rows: List[Dict[str, Any]] = []
    for row in json.loads(_run(_args("compare", repo, list(sides), "--json")))["rows"]:
        metrics = {key: _number(value) for key, value in row["metrics"].items()}
        rows.append({"side": row["side"], "item": row.get("item"), **row["params"], **metrics, "seconds": row["ms"] / 1000})
    return _frame(rows, {})


def _number(value: Any) -> Any:
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _frame(rows: Any, options: Dict[str, Any]) -> Any:
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows, **options)
