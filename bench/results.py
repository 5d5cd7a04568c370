"""Google Benchmark's JSON as medians over repetitions; what run.py and compare.py share."""

import json
import pathlib
import re
import statistics

# ffn_bench's names; Google Benchmark appends what else it was told, as in /real_time.
FFN_NAME = re.compile(
    r"ffn/(?P<shape>\d+x\d+)/(?P<format>[^/]+)/(?P<cache>cold|warm)"
    r"/tokens:(?P<tokens>\d+)/threads:(?P<threads>\d+)/(?P<library>[^/]+)"
)
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class BadFile(Exception):
    """A file that is not what it should be; the message is for a person."""


def read(path):
    """The parsed file. Raises BadFile."""
    try:
        data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadFile(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list):
        raise BadFile(f"{path}: not Google Benchmark's JSON: it has no list of benchmarks")
    return data


def repetitions(data):
    """Name -> its runs, aggregates left out, in the order of first appearance."""
    runs = {}
    for run in data["benchmarks"]:
        if run.get("run_type", "iteration") == "iteration":
            runs.setdefault(run.get("run_name", run["name"]), []).append(run)
    return runs


def seconds(runs):
    """The times of runs that did not fail."""
    return [
        run["real_time"] * UNITS[run.get("time_unit", "ns")]
        for run in runs
        if not run.get("error_occurred") and "real_time" in run
    ]


def median_of(runs, counter):
    """The median of a counter over the runs, or None where none has it."""
    values = [run[counter] for run in runs if counter in run]
    return statistics.median(values) if values else None
