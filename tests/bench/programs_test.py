#!/usr/bin/env python3
"""ffn_bench and roofline_bench run, on a tiny block and a cache that is said to be tiny.

    programs_test.py FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1))
TINY = ["--cache-mib=0.5", "--threads=1,2", "--benchmark_min_time=1x"]


def start(program, *arguments):
    return subprocess.run([FOLDER / program, *arguments], capture_output=True, text=True, check=False)


def results_of(program, *arguments):
    """The runs of a program that succeeds."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out.json")
        ended = start(program, *TINY, f"--benchmark_out={out}", *arguments)
        assert ended.returncode == 0, ended.stderr
        return json.loads(out.read_text(encoding="utf-8"))["benchmarks"]


class Ffn(unittest.TestCase):
    def test_blocks_cold_and_warm_beside_all_rivals(self):
        runs = results_of(
            "ffn_bench", "--shapes=64x96", "--formats=qb4w:32,qc8w", "--tokens=1,9",
            "--cold", "--warm", "--rivals=all",
        )  # fmt: skip
        names = {run["name"].removesuffix("/real_time") for run in runs}
        for cache in ("cold", "warm"):
            for library in ("sluice", "xnnpack"):
                self.assertIn(f"ffn/64x96/qc8w/{cache}/tokens:9/threads:2/{library}", names)
        for run in runs:
            self.assertNotIn("error_message", run)
            self.assertGreater(run["GB/s"], 0)
            self.assertGreater(run["GOP/s"], 0)
            self.assertEqual("of_dram" in run, "/cold/" in run["name"])
            self.assertTrue(run["label"])

    def test_repetitions_take_turns(self):
        runs = results_of(
            "ffn_bench", "--shapes=64x96", "--formats=qb4w:32", "--tokens=1", "--rivals=xnnpack",
            "--benchmark_repetitions=3", "--benchmark_enable_random_interleaving=true",
        )  # fmt: skip
        self.assertEqual(sum(run["run_type"] == "iteration" for run in runs), 2 * 2 * 3)

    def test_google_benchmarks_own_options(self):
        listed = start("ffn_bench", "--benchmark_list_tests", "--benchmark_filter=tokens:16/")
        self.assertEqual(listed.returncode, 0)
        self.assertTrue(all("tokens:16/" in line for line in listed.stdout.splitlines()))

    def test_help_has_all_options(self):
        text = start("ffn_bench", "--help").stdout
        for option in ("--shapes", "--formats", "--tokens", "--threads", "--cold", "--warm",
                       "--rivals", "--target", "--pages", "--cache-mib", "--benchmark_filter",
                       "ONEDNN_MAX_CPU_ISA"):  # fmt: skip
            self.assertIn(option, text)

    def test_wrong_options_are_usage_errors(self):
        for wrong in ("--shapes=0x1", "--formats=q9", "--tokens=0", "--threads=0", "--rivals=nobody",
                      "--target=nothing", "--pages=1g", "--unknown", "stray"):  # fmt: skip
            ended = start("ffn_bench", wrong)
            self.assertEqual(ended.returncode, 2, (wrong, ended.stderr))
            self.assertTrue(ended.stderr, wrong)


class Roofline(unittest.TestCase):
    def test_every_kind_of_limit(self):
        names = [run["name"] for run in results_of("roofline_bench")]
        for prefix in ("dram/4k/streams:8/threads:2", "dram/huge/streams:1/threads:1",
                       "fork_join/pool/threads:2", "fork_join/spin/threads:2"):  # fmt: skip
            self.assertTrue(any(name.startswith(prefix) for name in names), prefix)


if __name__ == "__main__":
    unittest.main()
