#!/usr/bin/env python3
"""Compares two results of a benchmark: which times changed by more than their own spread.

    compare.py A.json B.json

The files are Google Benchmark's JSON or that of `./platforms/run bench`, best with repetitions
(--benchmark_repetitions=5). Benchmarks are matched by name. B/A is the ratio of the median times: below
1, B is faster. The range beside it is that of the ratio if each side's median were anywhere from its
lower to its upper quartile; a ratio is marked as a change where that range leaves out 1. With fewer
than 3 repetitions there is no range, and nothing is marked.
"""

import argparse
import pathlib
import signal
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import results

LEAST_REPETITIONS = 3


def spread(times):
    """(lower quartile, median, upper quartile)."""
    median = statistics.median(times)
    if len(times) < 2:
        return median, median, median
    lower, _, upper = statistics.quantiles(times, n=4, method="inclusive")
    return lower, median, upper


def compare(a, b):
    """(rows, names only in A, names only in B). A row is (name, ratio, low, high, verdict), and rows
    are sorted by ratio; a verdict is "faster", "slower", "" within the noise, "?" if unknown."""
    a, b = results.repetitions(a), results.repetitions(b)
    rows = []
    for name in a:
        times_a, times_b = results.seconds(a[name]), results.seconds(b.get(name, []))
        if not times_a or not times_b or min(times_a) <= 0:
            continue
        low_a, median_a, high_a = spread(times_a)
        low_b, median_b, high_b = spread(times_b)
        low, high = low_b / high_a, high_b / low_a
        if min(len(times_a), len(times_b)) < LEAST_REPETITIONS:
            verdict = "?"
        else:
            verdict = "faster" if high < 1 else "slower" if low > 1 else ""
        rows.append((name, median_b / median_a, low, high, verdict))
    compared = {row[0] for row in rows}
    rows.sort(key=lambda row: row[1])
    return rows, [n for n in a if n not in compared], [n for n in b if n not in compared]


def text(rows, only_a, only_b):
    width = max([len(row[0]) for row in rows], default=4)
    lines = [f"{'name':<{width}}  {'B/A':>6}  {'range':>13}"]
    for name, ratio, low, high, verdict in rows:
        lines.append(f"{name:<{width}}  {ratio:6.3f}  {low:6.3f}-{high:6.3f}  {verdict}".rstrip())
    if rows:
        ratio = statistics.geometric_mean([row[1] for row in rows])
        counts = {v: sum(row[4] == v for row in rows) for v in ("faster", "slower")}
        lines.append(
            f"{len(rows)} compared: {counts['faster']} faster, {counts['slower']} slower, "
            f"geometric mean {ratio:.3f}"
        )
    for label, names in (("A", only_a), ("B", only_b)):
        lines += [f"only in {label}, or failed in the other: {name}" for name in names]
    return "\n".join(lines)


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", metavar="A.json")
    parser.add_argument("b", metavar="B.json")
    arguments = parser.parse_args(argv)
    try:
        rows, only_a, only_b = compare(results.read(arguments.a), results.read(arguments.b))
    except results.BadFile as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    if not rows:
        print("compare.py: the files have no benchmark in common", file=sys.stderr)
        return 1
    print(text(rows, only_a, only_b))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # into `head`
    sys.exit(main(sys.argv[1:]))
