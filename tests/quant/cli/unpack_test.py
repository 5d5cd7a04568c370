#!/usr/bin/env python3
"""`sluice unpack` against an independent reading of the packed file."""

import os
import subprocess

import numpy as np
import support
from support import TINY, assert_same_tensors, decode_packed, run


class Unpack(support.CommandTest):
    def check(self, path):
        run("unpack", path, "-o", self.dir / "plain.safetensors", "--quiet")
        plain = self.load("plain.safetensors")
        assert_same_tensors(plain, decode_packed(path))
        run("unpack", path, "-o", self.dir / "integers.safetensors", "--integers", "--quiet")
        assert_same_tensors(self.load("integers.safetensors"), decode_packed(path, integers=True))
        return plain

    def test_every_format(self):
        for name in support.FORMATS:
            with self.subTest(name):
                self.check(self.quantize("--weights", name))

    def test_rescaled(self):
        self.check(self.quantize("--method", "mse", "--calibration", support.CALIBRATION))

    def test_f32_is_what_the_model_holds(self):
        model = self.dir / "model"
        weights = support.write_llama(model, 33, 40, 2, np.random.default_rng(1))
        assert_same_tensors(self.check(self.quantize("--weights", "f32", model=model)), weights)

    def test_awkward_sizes_and_mixed_formats(self):
        rng = support.seeded_generator()
        for d, m in ((1, 1), (3, 2), (15, 17), (31, 33), (65, 129), (172, 100)):
            with self.subTest(d=d, m=m):
                model = self.dir / f"{d}x{m}"
                support.write_llama(model, d, m, 8, rng)
                overrides = []
                for layer, name in enumerate(support.FORMATS):
                    overrides += ["--override", f"{layer}:gate={name}"]
                    overrides += ["--override", f"{7 - layer}:down={name}"]
                self.check(self.quantize(*overrides, model=model))

    def test_biases(self):
        model = self.dir / "bert"
        weights = support.write_bert(model, 33, 65, 2, np.random.default_rng(1))
        plain = self.check(self.quantize("--up", "qb4w:64", "--down", "qc8w", model=model))
        self.assertEqual(sorted(plain), sorted(weights))
        for name in weights:
            if name.endswith(".bias"):
                np.testing.assert_array_equal(plain[name], weights[name])

    def test_integers_have_their_ranges_and_scales_their_shape(self):
        path = self.quantize("--gate", "qc4w", "--up", "qb4w:64", "--down", "qb8w:32")
        run("unpack", path, "-o", self.dir / "i.safetensors", "--integers")
        got = self.load("i.safetensors")
        name = "model.layers.0.mlp.{}_proj.weight"
        for which, low, high, blocks in (("gate", -8, 7, 1), ("up", -8, 7, 2), ("down", -127, 127, 11)):
            integers = got[name.format(which)]
            self.assertEqual(integers.dtype, np.int8)
            self.assertTrue(low <= integers.min() and integers.max() <= high)
            self.assertEqual(got[name.format(which) + ".scale"].shape, (integers.shape[0], blocks))

    def test_values_are_aligned_whatever_the_shapes(self):
        model = self.dir / "model"
        support.write_llama(model, 3, 5, 1, np.random.default_rng(1))
        path = self.quantize("--weights", "qc8w", model=model)
        out = self.dir / "i.safetensors"
        run("unpack", path, "-o", out, "--integers")
        raw = out.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        for name, tensor in support.json.loads(raw[8:start]).items():
            if name.endswith(".scale"):
                self.assertEqual((start + tensor["data_offsets"][0]) % 4, 0)

    def test_an_existing_output_is_replaced_but_the_input_is_not(self):
        path = self.quantize()
        out = self.dir / "plain.safetensors"
        out.write_text("old")
        run("unpack", path, "-o", out)
        self.assertEqual(len(self.load(out.name)), 12)
        before = path.read_bytes()
        self.assertIn(str(path), run("unpack", path, "-o", path, status=1).error)
        self.assertEqual(path.read_bytes(), before)

    def test_a_damaged_file_is_refused(self):
        path = self.quantize()
        damaged = bytearray(path.read_bytes())
        damaged[-100] ^= 1
        path.write_bytes(damaged)
        out = self.dir / "plain.safetensors"
        self.assertIn("checksum", run("unpack", path, "-o", out, status=1).error)
        self.assertFalse(out.exists())

    def test_closed_streams_are_not_taken_for_the_output(self):
        """A file opened in place of stderr would receive the progress, in the midst of weights."""
        path = self.quantize()
        run("unpack", path, "-o", self.dir / "expected")
        expected = (self.dir / "expected").read_bytes()
        out = self.dir / "plain.safetensors"
        for closed, status in (([2], 0), ([0, 2], 0), ([1], 1), ([0, 1, 2], 1)):
            command = [*support.SLUICE, "unpack", path, "-o", out]
            result = subprocess.run(command, preexec_fn=lambda fds=closed: [*map(os.close, fds)])
            self.assertEqual(result.returncode, status, closed)
            self.assertEqual(out.read_bytes(), expected, closed)
            out.unlink()

    def test_failures_leave_nothing(self):
        out = self.dir / "plain.safetensors"
        self.assertIn("/no/such/file", run("unpack", "/no/such/file", "-o", out, status=1).error)
        run("unpack", TINY / "model.safetensors", "-o", out, status=1)
        path = self.quantize()
        error = run("unpack", path, "-o", "/no/such/folder/x", status=1).error
        self.assertIn("/no/such/folder/x", error)
        truncated = self.dir / "truncated.safetensors"
        truncated.write_bytes(path.read_bytes()[:-64])
        self.assertIn(str(truncated), run("unpack", truncated, "-o", out, status=1).error)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    support.main()
