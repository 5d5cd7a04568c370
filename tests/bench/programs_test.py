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


TREE = pathlib.Path(__file__).resolve().parents[2]


def document_of(program, *arguments):
    """What a program that succeeds writes, and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out.json")
        ended = start(program, *TINY, f"--benchmark_out={out}", *arguments)
        assert ended.returncode == 0, ended.stderr
        return json.loads(out.read_text(encoding="utf-8")), ended.stderr


def results_of(program, *arguments):
    """The runs of a program that succeeds."""
    return document_of(program, *arguments)[0]["benchmarks"]


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
                       "--shapes-folder", "--governor-was", "--device-root",
                       "ONEDNN_MAX_CPU_ISA"):  # fmt: skip
            self.assertIn(option, text)

    def test_wrong_options_are_usage_errors(self):
        for wrong in ("--shapes=0x1", "--formats=q9", "--tokens=0", "--threads=0", "--rivals=nobody",
                      "--target=nothing", "--pages=1g", "--unknown", "stray"):  # fmt: skip
            ended = start("ffn_bench", wrong)
            self.assertEqual(ended.returncode, 2, (wrong, ended.stderr))
            self.assertTrue(ended.stderr, wrong)


class Device(unittest.TestCase):
    SMALL = ["--shapes=Qwen3-0.6B", "--formats=qb4w:32", "--tokens=1"]

    def test_the_context_has_the_device_and_the_models(self):
        root = f"--device-root={TREE}/tests/data/devices/pi4/root"
        document, said = document_of("ffn_bench", *self.SMALL, root, "--governor-was=powersave")
        context = document["context"]
        self.assertEqual(context["shapes"], [{"model": "Qwen3-0.6B", "d_model": 1024, "d_ff": 3072, "layers": 28}])
        self.assertEqual(context["device"]["board"], "Raspberry Pi 4 Model B Rev 1.2")
        self.assertGreater(context["device"]["dram"]["all_cores_gb_per_s"], 0)
        self.assertEqual(context["device"]["governor"]["changed_from"], "powersave")
        self.assertEqual(context["device"]["threads"]["measured"], [1, 2])
        self.assertIs(context["device"]["valid"], False)
        self.assertIn("THESE RESULTS ARE INVALID: under-voltage during the run", said)

    def test_both_programs_and_both_outputs_have_it(self):
        for program, more in (("ffn_bench", self.SMALL), ("roofline_bench", ["--benchmark_filter=spin"])):
            ended = start(program, "--cache-mib=0.5", "--benchmark_min_time=1x", "--benchmark_format=json", *more)
            self.assertIn("samples", json.loads(ended.stdout)["context"]["device"], ended.stderr)
            self.assertIn("device", document_of(program, *more)[0]["context"])

    def test_other_forms_are_google_benchmarks(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "out.csv")
            ended = start("ffn_bench", *TINY, *self.SMALL, f"--benchmark_out={out}", "--benchmark_out_format=csv")
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("ffn/1024x3072", out.read_text(encoding="utf-8"))


class Roofline(unittest.TestCase):
    def test_every_kind_of_limit(self):
        names = [run["name"] for run in results_of("roofline_bench")]
        for prefix in ("dram/4k/streams:8/threads:2", "dram/huge/streams:1/threads:1", "dram/huge/streams:8/meet:384/threads:2",
                       "fork_join/pool/threads:2", "fork_join/spin/threads:2"):  # fmt: skip
            self.assertTrue(any(name.startswith(prefix) for name in names), prefix)


if __name__ == "__main__":
    unittest.main()
