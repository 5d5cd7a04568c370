#!/usr/bin/env python3
"""run.py makes its table from what ffn_bench writes; a script plays ffn_bench."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import run

# Writes results for the shape and formats it is asked for: sluice takes 10, 11, 12 us, xnnpack 22, 24
# and 26; the other rival fails its check.
FAKE = """#!/usr/bin/env python3
import json, sys
options = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
runs = []
for weights in options["formats"].split(","):
    for library, times in (("sluice", [10, 12, 11]), ("xnnpack", [26, 22, 24]), ("other", [])):
        name = f"ffn/{options['shapes']}/{weights}/cold/tokens:1/threads:2/{library}/real_time"
        run = {"name": name, "run_name": name, "run_type": "iteration"}
        for t in times:
            runs.append(run | {"real_time": t, "time_unit": "us", "GB/s": 100 / t, "GOP/s": 5.0,
                               "of_dram": 0.8, "of_mix": 0.1, "of_limit": 0.8, "label": "kernel"})
        if not times:
            runs.append(run | {"error_occurred": True, "error_message": "wrong result: 0.5"})
json.dump({"context": {"num_cpus": 2}, "benchmarks": runs}, open(options["benchmark_out"], "w"))
print("this goes to stderr")
"""


class Driver(unittest.TestCase):
    def run_driver(self, *options, fake=FAKE):
        out = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, open("/dev/null", "w", encoding="utf-8") as null:
            program = pathlib.Path(folder, "ffn_bench")
            program.write_text(fake, encoding="utf-8")
            program.chmod(0o755)
            path = pathlib.Path(folder, "new", "results.json")
            # A true file for stderr, since it is the child's stdout too.
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(null):
                status = run.main(["--programs", folder, "--json", str(path), *options])
            self.json = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return status, out.getvalue()

    def test_one_row_for_each_case_and_library(self):
        status, out = self.run_driver("--shapes", "64x96,128x160", "--formats", "qb4w:32,qc8w,qb4w:128")
        self.assertEqual(status, 1)  # since one library was wrong
        lines = out.splitlines()
        self.assertEqual(len(lines), 1 + 2 * 3 * 3)
        self.assertEqual(lines[0].split()[:3], ["shape", "weights", "cache"])
        self.assertEqual(sum("ERROR: wrong result" in line for line in lines), 6)
        sluice = next(line for line in lines if "sluice" in line)
        for cell in ("64x96", "qb4w:32", "11 us", "80 %", "DRAM", "2.18", "xnnpack"):
            self.assertIn(cell, sluice)

    def test_json_has_runs_and_rows(self):
        self.run_driver("--shapes", "64x96", "--formats", "qc8w")
        self.assertEqual(self.json["context"], {"num_cpus": 2})
        self.assertEqual(len(self.json["benchmarks"]), 7)
        row = next(r for r in self.json["rows"] if r["library"] == "sluice")
        self.assertAlmostEqual(row["seconds"], 11e-6)
        self.assertAlmostEqual(row["ratio_to_rival"], 24 / 11)

    def test_a_program_that_writes_nothing_is_an_error(self):
        status, out = self.run_driver("--shapes", "64x96", fake="#!/bin/sh\nexit 1\n")
        self.assertEqual((status, out, self.json), (1, "", None))

    def test_what_a_library_that_crashes_took_along_is_said(self):
        for script, parts in (
            ("kill -ILL $$", ("Illegal instruction", "--rivals")),
            ("exit 3", ("status 3",)),
        ):
            with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as stderr:
                program = pathlib.Path(folder, "program")
                program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
                program.chmod(0o755)
                with contextlib.redirect_stderr(stderr):
                    self.assertIsNone(run.measure([str(program)], str(pathlib.Path(folder, "out"))))
                stderr.seek(0)
                said = stderr.read()
            for part in parts:
                self.assertIn(part, said)

    def test_rivals_are_compared_at_the_same_bits(self):
        self.assertEqual(
            [run.bits(f) for f in ("qb4w:32", "qb4w:128+row", "qc4w", "qc8w", "qb8w:32", "f32")],
            [4, 4, 4, 8, 8, 32],
        )

    def test_a_busy_machine_is_warned_of(self):
        self.assertIsNone(run.warning({"load_avg": [1.5], "num_cpus": 2}))
        self.assertIsNone(run.warning({}))
        self.assertIn("7.0 on 2 CPUs", run.warning({"load_avg": [7.0, 1, 1], "num_cpus": 2}))

    def test_quick_and_full(self):
        quick, _ = run.parse(["--programs", "x"])
        full, rest = run.parse(["--programs", "x", "--full", "--tokens", "7", "--threads=1"])
        self.assertEqual((quick.tokens, quick.rivals), (run.QUICK["tokens"], "xnnpack"))
        self.assertEqual((full.tokens, full.rivals, rest), ("7", "all", ["--threads=1"]))


if __name__ == "__main__":
    unittest.main()
