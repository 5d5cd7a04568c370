#!/usr/bin/env python3
"""report.py makes its report from what ffn_bench and roofline_bench write; results are made up here."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "bench"))
import report
import results


def device(name="pi5", **changes):
    """What the tests' tree of that name records, with a limit of memory."""
    record = json.loads((TREE / f"tests/data/devices/{name}/expected.json").read_text(encoding="utf-8"))
    for seconds, sample in enumerate(record["samples"]):
        sample |= {"seconds": float(seconds), "measured_hz": 2.4e9}
    record["dram"] = {"one_core_gb_per_s": 9.0, "all_cores_gb_per_s": 12.5, "threads": 4}
    return record | changes


def runs(name, times, **counters):
    name += "/real_time"
    return [{"name": name, "run_name": name, "run_type": "iteration", "real_time": t, "time_unit": "us",
             **counters} for t in times]  # fmt: skip


def blocks(record=None, models=(("One", 10), ("Other", 20)), times=(110.0, 100.0, 130.0)):
    counters = {"GB/s": 10.0, "GOP/s": 50.0, "of_dots": 0.7, "of_mix": 0.8, "of_limit": 0.8}
    cold = "ffn/64x96/qb4w:32/cold/tokens:{}/threads:4/sluice"
    return {
        "context": {
            "date": "2026-01-01",
            "device": record or device(),
            "shapes": [{"model": m, "d_model": 64, "d_ff": 96, "layers": l} for m, l in models],
        },
        "benchmarks": runs(cold.format(1), times, of_dram=0.8, **counters)
        + runs(cold.format(128), [12800.0], of_dram=0.1, **counters),
    }


def line_with(text, *words):
    """The one line that has all of the words."""
    lines = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(lines) == 1, (words, lines)
    return lines[0]


class Report(unittest.TestCase):
    def test_tokens_a_second_are_those_of_all_layers(self):
        text = report.report([blocks()])
        # Median 110 us: 10 layers take 1.1 ms, 20 take 2.2 ms.
        cells = [c.strip() for c in line_with(text, "One |", "110 us").strip("|").split("|")]
        self.assertEqual(cells, ["One", "64x96", "10", "qb4w:32", "cold", "4", "110 us", "100 us – 130 us",
                                 "10", "80 %", "909"])  # fmt: skip
        self.assertIn("455", line_with(text, "Other |", "110 us"))
        prompt = [c.strip() for c in line_with(text, "One |", "12.8 ms").strip("|").split("|")]
        self.assertEqual(prompt[-4:], ["50", "70 %", "80 %", "1000"])  # 128 tokens in 10 · 12.8 ms

    def test_rows_are_in_order_whatever_the_turns_were(self):
        data = blocks(models=[("One", 10)])
        data["benchmarks"] += runs("ffn/64x96/qb4w:32/cold/tokens:1/threads:1/sluice", [300.0], of_dram=0.5, of_dots=None,
                                   of_mix=None, of_limit=0.5, **{"GB/s": 3.0, "GOP/s": 1.0})  # fmt: skip
        text = report.report([data])
        self.assertLess(text.index("| 300 us |"), text.index("| 110 us |"))

    def test_a_model_without_layers_has_no_tokens_a_second(self):
        text = report.report([blocks(models=[("Unknown", None)])])
        self.assertIn("not told", line_with(text, "Unknown", "110 us"))
        self.assertTrue(line_with(text, "Unknown", "110 us").endswith("|  |"))

    def test_the_device_and_its_limits(self):
        text = report.report([blocks()])
        for words in (("board", "Raspberry Pi 5 Model B"), ("revision", "d04170"), ("page size", "16384"),
                      ("governor", "performance, not changed"), ("throttle word", "0x0 before, 0x0 after"),
                      ("memory read by one core", "9 GB/s"), ("memory read by 4 cores", "12.5 GB/s"),
                      ("CPU quota", "none")):  # fmt: skip
            line_with(text, *words)
        self.assertIn("Valid: the device was not throttled", text)
        self.assertIn("Measured clock: 2400 to 2400 MHz in 2 samples", text)

    def test_the_arithmetic_limits_are_of_the_best_instruction(self):
        roofline = {"context": {"device": device()}, "benchmarks":
                    runs("arithmetic/SDOT/dots/threads:4", [1.0], **{"GOP/s": 600.0})
                    + runs("arithmetic/SMULL/dots/threads:4", [1.0], **{"GOP/s": 150.0})}  # fmt: skip
        text = report.report([blocks(), roofline])
        self.assertIn("600 GOP/s", line_with(text, "dots by SDOT, 4 threads"))
        self.assertNotIn("SMULL", text)

    def test_a_throttled_run_is_marked_where_it_was(self):
        text = report.report([blocks(device("pi4"), models=[("Bad", 2)]), blocks(models=[("Good", 2)])])
        self.assertIn("**INVALID.** The device was throttled: throttled during the run, under-voltage", text)
        line_with(text, "Bad (!)", "110 us")
        self.assertNotIn("(!)", line_with(text, "Good", "110 us"))

    def test_what_the_firmware_could_not_show_is_said(self):
        self.assertIn("Valid as far as can be seen", report.report([blocks(device("zero2w"))]))

    def test_what_the_device_does_not_tell(self):
        text = report.report([blocks(device("container"))])
        self.assertIn("does not tell whether it was throttled", text)
        self.assertIn("not told", line_with(text, "| board |"))
        self.assertIn("1.5 CPUs", line_with(text, "CPU quota"))

    def test_a_changed_governor_and_other_load(self):
        record = device(governor={"before": "performance", "after": "performance", "changed": True,
                                  "changed_from": "ondemand"}, load={"other_cpus": 1.25})  # fmt: skip
        text = report.report([blocks(record)])
        self.assertIn("changed from ondemand for this run", line_with(text, "governor"))
        self.assertIn("Other programs used up to 1.2 CPUs", text)

    def test_what_failed_is_listed(self):
        data = blocks()
        data["benchmarks"][-1] |= {"error_occurred": True, "error_message": "needs 900 MiB of memory"}
        text = report.report([data])
        self.assertIn("## Not measured", text)
        self.assertIn("128", line_with(text, "One", "needs 900 MiB"))
        line_with(report.report([blocks()], [("Large", "ended by signal 9")]), "Large", "ended by signal 9")

    def test_a_long_course_is_thinned_and_keeps_its_end(self):
        record = device()
        record["samples"] = [record["samples"][0] | {"seconds": float(i), "celsius": i} for i in range(100)]
        text = report.report([blocks(record)])
        rows = [line for line in text.splitlines() if line.startswith("| ") and " s |" in line]
        self.assertLessEqual(len(rows), report.SERIES_ROWS + 1)
        self.assertIn("99 s", rows[-1])
        self.assertIn("Temperature: 0 to 99 °C in 100 samples", text)


class Command(unittest.TestCase):
    def call(self, *arguments):
        return subprocess.run([sys.executable, TREE / "bench/report.py", *arguments], capture_output=True, text=True,
                              check=False)  # fmt: skip

    def test_writes_a_file_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            source, out = pathlib.Path(folder, "a.json"), pathlib.Path(folder, "report.md")
            source.write_text(json.dumps(blocks()), encoding="utf-8")
            self.assertEqual(self.call(source, "-o", out).returncode, 0)
            self.assertIn("# sluice on Raspberry Pi 5", out.read_text(encoding="utf-8"))
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()), ["a.json", "report.md"])
            self.assertEqual(self.call(source).stdout, out.read_text(encoding="utf-8"))

    def test_what_is_no_result_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "a.json")
            for text in ("nonsense", "{}", json.dumps({"benchmarks": [], "context": {}})):
                source.write_text(text, encoding="utf-8")
                ended = self.call(source)
                self.assertEqual(ended.returncode, 1)
                self.assertTrue(ended.stderr.startswith("report.py: "), ended.stderr)
        self.assertIn("/no/such", self.call("/no/such").stderr)
        self.assertTrue(issubclass(results.BadFile, Exception))


if __name__ == "__main__":
    unittest.main()
