#!/usr/bin/env python3
"""`sluice run`: its inputs, its errors, and what it does with NaN. Accuracy has a test of its own."""

import numpy as np
import support
from support import run, run_json


class Run(support.CommandTest):
    def setUp(self):
        super().setUp()
        self.packed = self.quantize()
        self.y = self.dir / "y.safetensors"
        self.rng = np.random.default_rng(3)

    def forward(self, x, *options, layer=0, **keywords):
        """y, or None if there is none; self.result is how the command ended."""
        path = self.save("x.safetensors", x=x)
        where = ["--layer", layer, "--input", path, "--output", self.y]
        self.result = run("run", self.packed, *where, *options, **keywords)
        return self.load("y.safetensors")["y"] if self.y.exists() else None

    def inputs(self, tokens=5):
        return self.rng.standard_normal((tokens, 128)).astype(np.float32)

    def test_shapes(self):
        for tokens in (0, 1, 7, 600):
            y = self.forward(self.inputs(tokens))
            self.assertEqual((y.dtype, y.shape), (np.float32, (tokens, 128)))
        self.assertEqual(sorted(self.load("y.safetensors")), ["y"])

    def test_long_inputs_are_run_in_pieces(self):
        x = self.inputs(1100)
        y = self.forward(x)
        for first in (0, 505, 1020):
            piece = self.forward(x[first : first + 20])
            np.testing.assert_array_equal(y[first : first + 20], piece)

    def test_the_result_does_not_depend_on_threads_targets_or_the_batch(self):
        x = self.inputs(20)
        first = self.forward(x).tobytes()
        self.assertEqual(self.forward(x, "--threads", "1").tobytes(), first)
        self.assertEqual(self.forward(x, "--threads", "3").tobytes(), first)
        self.assertEqual(self.forward(x, "--backend", "reference").tobytes(), first)
        alone = b"".join(self.forward(x[i : i + 1]).tobytes() for i in range(3))
        self.assertEqual(alone, first[: len(alone)])
        for target in run_json("cpu", "cpu", "--json")["targets"]:
            # Those without FMA are outside of the contract, within 1e-3.
            if not target["available"]:
                self.forward(x, "--target", target["name"], status=1)
                self.assertIn(target["name"], self.result.error)
                continue
            y = self.forward(x, "--target", target["name"])
            self.assertLess(support.relative_l2(y, np.frombuffer(first, "<f4").reshape(x.shape)), 1e-3)
            if target["name"] not in ("SSE2", "SSSE3", "SSE4"):
                self.assertEqual(y.tobytes(), first, target["name"])

    def test_layers_differ_and_unknown_ones_are_named(self):
        x = self.inputs()
        self.assertFalse(np.array_equal(self.forward(x, layer=0), self.forward(x, layer=3)))
        self.y.unlink()
        self.forward(x, layer=4, status=1)
        self.assertIn("4", self.result.error)
        self.assertIn(str(self.packed), self.result.error)
        self.assertFalse(self.y.exists())

    def test_x_of_the_wrong_kind(self):
        for x, told in (
            (np.ones((3, 127), np.float32), "[3, 127]"),
            (np.ones(128, np.float32), "[128]"),
            (np.ones((1, 2, 128), np.float32), "[1, 2, 128]"),
            (np.ones((3, 128), np.float16), "F16"),
            (np.ones((3, 128), np.float64), "F64"),
        ):
            self.forward(x, status=1)
            self.assertIn(told, self.result.error)
            self.assertIn("F32 [t, 128]", self.result.error)
            self.assertIn("x.safetensors", self.result.error)
        other = self.save("other.safetensors", input=self.inputs())
        where = ["--layer", 0, "--input", other, "--output", self.y]
        self.assertIn('"x"', run("run", self.packed, *where, status=1).error)
        self.assertFalse(self.y.exists())

    def test_nan_and_infinity_stay_in_their_tokens(self):
        x = self.inputs()
        clean = self.forward(x)
        self.assertEqual(self.result.warnings, [])
        x[1, 5] = np.nan
        x[3, 0] = -np.inf
        for backend in ("highway", "reference", "xnnpack"):
            expected = clean
            if backend == "xnnpack":
                zeros = np.nan_to_num(x, nan=0, neginf=0)
                expected = self.forward(zeros, "--backend", backend)
            y = self.forward(x, "--backend", backend)
            self.assertEqual(len(self.result.warnings), 1)
            self.assertIn("2 of 5 tokens", self.result.warnings[0])
            self.assertTrue((y[[1, 3]].view(np.uint32) == 0x7FC00000).all())
            np.testing.assert_array_equal(y[[0, 2, 4]], expected[[0, 2, 4]])

    def test_what_a_backend_lacks_is_named(self):
        self.packed = self.quantize("--down", "qb8w:32")
        self.forward(self.inputs(), "--backend", "xnnpack", status=1)
        for word in ("xnnpack", "down", "qb8w:32"):
            self.assertIn(word, self.result.error)
        target = run_json("cpu", "cpu", "--json")["targets"][-1]["name"]
        self.packed = self.quantize()
        self.forward(self.inputs(), "--backend", "xnnpack", "--target", target, status=1)
        self.assertIn(target, self.result.error)
        self.assertEqual(self.files(), ["packed.safetensors", "x.safetensors"])

    def test_inputs_are_never_overwritten(self):
        x = self.save("x.safetensors", x=self.inputs())
        for output in (x, self.packed):
            before = output.read_bytes()
            where = ["--layer", 0, "--input", x, "--output", output]
            run("run", self.packed, *where, status=1)
            self.assertEqual(output.read_bytes(), before)

    def test_a_checkpoint_is_no_packed_file(self):
        self.packed = support.TINY / "model.safetensors"
        self.forward(self.inputs(), status=1)
        self.assertIn(str(self.packed), self.result.error)

    def test_a_gguf_is_to_be_quantized_first(self):
        model = self.dir / "model.gguf"
        support.write_gguf(model, 64, 96, 1, self.rng)
        told = f"{model}: is a GGUF checkpoint; quantize it first"
        x, out = self.save("x.safetensors", x=self.inputs()), self.dir / "out.safetensors"
        for command in (
            ["run", model, "--layer", 0, "--input", x, "--output", out],
            ["unpack", model, "-o", out],
            ["bench", model],
        ):
            self.assertEqual(run(*command, status=1).error, told)
        self.assertFalse(out.exists())

    def test_a_short_name_for_the_output(self):
        x = self.save("x.safetensors", x=self.inputs())
        run("run", self.packed, "--layer", 0, "--input", x, "-o", self.y)
        self.assertTrue(self.y.exists())


if __name__ == "__main__":
    support.main()
