#!/usr/bin/env python3
"""compare.py tells a change from noise, on results with known differences."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare
import results


def benchmarks(times, unit="us"):
    """Google Benchmark's JSON: name -> the times of its repetitions. With aggregates, to be ignored."""
    runs = []
    for name, values in times.items():
        for value in values:
            runs.append({"name": name, "run_name": name, "run_type": "iteration",
                         "real_time": value, "time_unit": unit})  # fmt: skip
        runs.append({"name": name + "_mean", "run_name": name, "run_type": "aggregate",
                     "real_time": 1e9, "time_unit": unit})  # fmt: skip
    return {"context": {}, "benchmarks": runs}


class Compare(unittest.TestCase):
    def verdict(self, a, b):
        rows, _, _ = compare.compare(benchmarks({"x": a}), benchmarks({"x": b}))
        return rows[0][4]

    def test_ratio_of_medians(self):
        a = benchmarks({"x": [10, 11, 12, 13, 100]})
        b = benchmarks({"x": [5, 6, 6, 6, 50]})
        (name, ratio, low, high, _), = compare.compare(a, b)[0]
        self.assertEqual((name, ratio), ("x", 0.5))
        self.assertLess(low, ratio)
        self.assertGreater(high, ratio)

    def test_what_lies_outside_the_noise_is_marked(self):
        self.assertEqual(self.verdict([10, 10.1, 10.2], [5, 5.1, 5.2]), "faster")
        self.assertEqual(self.verdict([5, 5.1, 5.2], [10, 10.1, 10.2]), "slower")
        self.assertEqual(self.verdict([10, 12, 14], [9, 11, 13]), "")
        self.assertEqual(self.verdict([10, 10, 10], [10, 10, 10]), "")

    def test_too_few_repetitions_mark_nothing(self):
        self.assertEqual(self.verdict([10], [5]), "?")

    def test_units_do_not_matter(self):
        rows, _, _ = compare.compare(
            benchmarks({"x": [1, 1, 1]}, "ms"), benchmarks({"x": [1000, 1000, 1000]}, "us")
        )
        self.assertAlmostEqual(rows[0][1], 1)

    def test_sorted_by_ratio_and_the_unmatched_named(self):
        a = benchmarks({"p": [10] * 3, "q": [10] * 3, "only a": [1] * 3})
        b = benchmarks({"q": [5] * 3, "p": [20] * 3, "only b": [1] * 3})
        rows, only_a, only_b = compare.compare(a, b)
        self.assertEqual([row[0] for row in rows], ["q", "p"])
        self.assertEqual((only_a, only_b), (["only a"], ["only b"]))

    def test_a_failed_run_is_not_a_time(self):
        a = benchmarks({"x": [10] * 3})
        b = benchmarks({"x": [10] * 3})
        for run in b["benchmarks"]:
            run["error_occurred"] = True
        rows, only_a, _ = compare.compare(a, b)
        self.assertEqual((rows, only_a), ([], ["x"]))


class CommandLine(unittest.TestCase):
    def run_on(self, a, b):
        out, err = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, name) for name in ("a.json", "b.json")]
            for path, text in zip(paths, (a, b)):
                path.write_text(text, encoding="utf-8")
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = compare.main([str(p) for p in paths])
        return status, out.getvalue(), err.getvalue()

    def test_the_table(self):
        a = json.dumps(benchmarks({"x": [10] * 3}))
        b = json.dumps(benchmarks({"x": [5] * 3}))
        status, out, _ = self.run_on(a, b)
        self.assertEqual(status, 0)
        self.assertIn("0.500", out)
        self.assertIn("1 compared: 1 faster, 0 slower", out)

    def test_files_that_are_something_else(self):
        good = json.dumps(benchmarks({"x": [10] * 3}))
        for bad in ("", "[]", "{}", '{"benchmarks": 1}', json.dumps(benchmarks({"y": [1]}))):
            status, _, err = self.run_on(good, bad)
            self.assertEqual(status, 1, bad)
            self.assertTrue(err.startswith("compare.py: "), err)

    def test_a_missing_file(self):
        with self.assertRaises(results.BadFile):
            results.read("/no/such/file")


if __name__ == "__main__":
    unittest.main()
