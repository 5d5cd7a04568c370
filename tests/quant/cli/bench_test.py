#!/usr/bin/env python3
"""`sluice bench`: that it measures what it says. How fast anything is, is not tested here."""

import re

import support
from support import read_json, run

SMALL = ["--shape", "64,96", "--cache", "warm", "--rounds", "3"]


class Bench(support.CommandTest):
    def bench(self, *options, **keywords):
        out = self.dir / "bench.json"
        self.result = run("bench", *options, "--json", out, **keywords)
        return read_json("bench", out)["results"]

    def test_all_combinations_in_their_groups(self):
        results = self.bench(
            *SMALL, "--weights", "qb4w:32,qc8w", "--batch", "1,9", "--threads", "1,2",
            "--backend", "highway,reference",
        )
        got = [(r["weights"], r["tokens"], r["threads"], r["backend"]) for r in results]
        self.assertEqual(
            got,
            [
                (weights, tokens, threads, backend)
                for weights in ("qb4w:32", "qc8w")
                for tokens in (1, 9)
                for threads in (1, 2)
                for backend in ("highway", "reference")
            ],
        )
        for r in results:
            self.assertEqual((r["shape"], r["rounds"], r["cache"]), ([64, 96], 3, "warm"))
            self.assertLessEqual(r["seconds_min"], r["seconds_median"])
            self.assertLessEqual(r["seconds_median"], r["seconds_max"])

    def test_rates_follow_from_time_and_size(self):
        for r in self.bench(*SMALL, "--weights", "qb4w:32,f32", "--batch", "1,4"):
            weights = 3 * 64 * 96
            stored = weights * {"qb4w:32": 4.5, "f32": 32}[r["weights"]] / 8
            self.assertAlmostEqual(r["gb_per_s"] * r["seconds_median"] * 1e9, stored, delta=1e-3)
            operations = 6 * 64 * 96 * r["tokens"]
            self.assertAlmostEqual(
                r["gop_per_s"] * r["seconds_median"] * 1e9, operations, delta=1e-3
            )

    def test_activations_are_the_backends(self):
        def of(*options):
            results = self.bench(*SMALL, "--batch", "1", *options)
            return [r["activations"] for r in results]

        self.assertEqual(of("--weights", "qb4w:32,qc8w,f32"), ["block", "row", "f32"])
        self.assertEqual(of("--weights", "qb4w:32,f32", "--activations", "row"), ["row", "f32"])
        self.assertEqual(of("--backend", "highway,xnnpack"), ["block", "qd8"])
        self.assertIn("its own way: qd8", self.result.stdout)

    def test_targets(self):
        targets = [t["name"] for t in support.run_json("cpu", "cpu", "--json")["targets"] if
                   t["available"]]
        results = self.bench(*SMALL, "--batch", "1", "--target", ",".join(targets))
        self.assertEqual([r["target"] for r in results], targets)

    def test_what_is_lacking_is_left_out_among_several(self):
        results = self.bench(
            *SMALL, "--batch", "1", "--weights", "qb8w:32,qc8w", "--backend", "highway,xnnpack"
        )
        self.assertEqual(
            [(r["weights"], r["backend"]) for r in results],
            [("qb8w:32", "highway"), ("qc8w", "highway"), ("qc8w", "xnnpack")],
        )
        self.assertRegex(self.result.stderr, r"(?m)^sluice: left out: .*qb8w:32")

    def test_what_is_lacking_alone_is_an_error(self):
        out = self.dir / "bench.json"
        error = run(
            *["bench", *SMALL, "--weights", "qb8w:32", "--backend", "xnnpack", "--json", out],
            status=1,
        ).error
        self.assertIn("xnnpack", error)
        self.assertIn("qb8w:32", error)
        self.assertEqual(self.files(), [])

    def test_a_layer_of_a_file(self):
        packed = self.quantize("--down", "qc8w", "--layers", "1-3")
        r = self.bench(packed, "--batch", "1", "--cache", "warm", "--rounds", "2")[0]
        self.assertEqual(r["shape"], [128, 352])
        self.assertEqual(r["weights"], "qb4w:32/qb4w:32/qc8w")
        self.assertEqual(r["activations"], "block/row")
        self.bench(packed, "--layer", "2", "--batch", "1", "--cache", "warm", "--rounds", "1")
        run("bench", packed, "--layer", "0", "--cache", "warm", status=1)
        before = packed.read_bytes()
        run("bench", packed, "--cache", "warm", "--json", packed, status=1)
        self.assertEqual(packed.read_bytes(), before)

    def test_cold_weights_outgrow_the_cache(self):
        text = run(
            *["bench", "--shape", "576,1536", "--batch", "1", "--rounds", "1", "--threads", "1"]
        ).stdout
        match = re.search(r"cold: (\d+) copies in turn, .*?, ([\d.]+) times the cache", text)
        self.assertGreater(int(match[1]), 1)
        if "fit;" not in text:
            self.assertGreaterEqual(float(match[2]), 3)

    def test_text_names_the_machine_and_the_ratio(self):
        text = run("bench", *SMALL, "--batch", "1", "--backend", "highway,reference").stdout
        self.assertIn("CPU", text.splitlines()[0])
        self.assertRegex(text.splitlines()[0], r"\d+ threads? by default")
        self.assertIn("last-level cache", text.splitlines()[0])
        self.assertRegex(text, r"(?m)reference .* [\d.]+ x$")

    def test_failures(self):
        self.assertIn("/no/such/file", run("bench", "/no/such/file", status=1).error)
        error = run("bench", *SMALL, "--json", "/no/such/folder/b.json", status=1).error
        self.assertIn("/no/such/folder/b.json", error)
        error = run("bench", *SMALL, "--json", "-", status=1, cwd=self.dir).error
        self.assertIn("standard output", error)


if __name__ == "__main__":
    support.main()
