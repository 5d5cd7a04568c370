#!/usr/bin/env python3
"""`sluice quantize --method`: calibrated methods, what they need, what they leave behind, and that a
killed run can go on."""

import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np
import support
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from support import CALIBRATION, SLUICE, TINY, read_json, run

TEXT = TINY / "heldout.txt"
# Threads that wait spin, and these jobs are small.
ONE = ["--threads", 1]
# Where a test is not about how good a fit is: its first layers, on a part of the text.
SOME = ["--layers", "0-1", *ONE]
SHORT = 2048


def methods_of(path):
    """(layer, matrix) -> the method and the requested method in a packed file."""
    with safe_open(path, framework="np") as opened:
        description = json.loads(opened.metadata()["sluice"])
    return {
        (layer["layer"], matrix): (info.get("method"), info.get("requested_method"))
        for layer in description["layers"]
        for matrix, info in layer["matrices"].items()
    }


class MethodTest(support.CommandTest):
    def setUp(self):
        super().setUp()
        # Not in self.dir, where tests look for what is left behind.
        folder = tempfile.TemporaryDirectory(prefix="sluice-test.")
        self.addCleanup(folder.cleanup)
        self.short = pathlib.Path(folder.name) / "short.txt"
        self.short.write_bytes(TEXT.read_bytes()[:SHORT])


class Methods(MethodTest):
    def errors(self, *options):
        """Each layer's error on inputs that calibration had no part in."""
        packed = self.dir / "packed.safetensors"
        report = self.dir / "report.json"
        run("quantize", TINY, "-o", packed, "--force", *ONE, *options)
        run("report", TINY, packed, "--calibration", self.other_inputs(), "--json", report)
        return [layer["output"]["relative_l2"] for layer in read_json("report", report)["layers"]]

    def split(self, name, rows):
        path = self.dir / name
        save_file({k: v[rows].copy() for k, v in load_file(CALIBRATION).items()}, path)
        return path

    def inputs(self):
        return self.split("inputs.safetensors", slice(0, 320))

    def other_inputs(self):
        return self.split("other.safetensors", slice(320, None))

    def test_each_method_is_better_than_the_one_before_in_every_layer(self):
        rtn = self.errors()
        mse = self.errors("--method", "mse", "--calibration", self.inputs())
        gptq = self.errors("--method", "gptq", "--calibration", self.inputs())
        for layer in range(4):
            self.assertLess(mse[layer], rtn[layer])
            self.assertLess(gptq[layer], 0.97 * mse[layer])

    def test_errors_on_the_fitted_inputs_are_said_to_flatter(self):
        note = "the inputs that gptq was fitted to"
        inputs = ["--calibration", self.inputs(), "--force", "--strict"]
        path, report = self.dir / "packed.safetensors", self.dir / "r.json"
        options = ["--layers", "0", "--report", report, *inputs, *ONE]
        text = run("quantize", TINY, "-o", path, "--method", "gptq", *options).stdout
        self.assertIn(note, text)
        self.assertTrue(any(note in w for w in read_json("report", report)["warnings"]))
        self.assertNotIn("was fitted to", run("quantize", TINY, "-o", path, *options).stdout)
        text = ["--method", "mse", "--text", self.short]
        self.assertNotIn("was fitted to", run("quantize", TINY, "-o", path, *text, *options).stdout)

    def test_gptq_on_text_is_better_than_rtn_in_every_layer(self):
        rtn = self.errors()
        gptq = self.errors("--method", "gptq", "--text", TEXT, "--context", "256")
        for layer in range(4):
            self.assertLess(gptq[layer], 0.9 * rtn[layer])

    def test_the_file_says_which_method_each_matrix_got(self):
        path = self.quantize("--method", "gptq", "--text", self.short, "--override", "1:down=bf16", *ONE)
        methods = methods_of(path)
        self.assertEqual(methods.pop((1, "down")), (None, None))
        self.assertEqual(set(methods.values()), {("gptq", "gptq")})
        self.assertEqual(set(methods_of(self.quantize()).values()), {("rtn", "rtn")})
        run("inspect", path, "--verify")

    def test_a_fallback_is_said_and_is_an_error_with_strict(self):
        # Inputs that are all zero say nothing.
        zero = self.dir / "zero.safetensors"
        inputs = load_file(CALIBRATION)
        inputs["model.layers.2.mlp.input"][:] = 0
        save_file(inputs, zero)
        path = self.dir / "packed.safetensors"
        options = ["--method", "gptq", "--calibration", zero, *ONE]
        warnings = run("quantize", TINY, "-o", path, *options).warnings
        self.assertTrue(any("layer 2: gate is quantized by mse" in w for w in warnings), warnings)
        self.assertEqual(methods_of(path)[2, "gate"], ("mse", "gptq"))
        self.assertEqual(methods_of(path)[1, "gate"], ("gptq", "gptq"))
        strict = self.dir / "strict.safetensors"
        run("quantize", TINY, "-o", strict, *options, "--strict", status=1)
        self.assertFalse(strict.exists())

    def test_a_layer_without_inputs_is_rounded_to_nearest(self):
        inputs = load_file(CALIBRATION)
        del inputs["model.layers.1.mlp.input"]
        some = self.dir / "some.safetensors"
        save_file(inputs, some)
        path = self.quantize("--method", "gptq", "--calibration", some, *SOME)
        self.assertEqual(methods_of(path)[1, "up"], ("rtn", "gptq"))
        self.assertEqual(methods_of(path)[0, "up"], ("gptq", "gptq"))

    def test_the_same_bits_for_any_number_of_threads(self):
        for source in (["--text", self.short], ["--calibration", CALIBRATION]):
            paths = [self.dir / f"{threads}.safetensors" for threads in (1, 2, 3)]
            for threads, path in enumerate(paths, 1):
                options = ["--method", "gptq", *source, "--layers", "0-1", "--threads", threads]
                run("quantize", TINY, "-o", path, "--force", *options)
            for path in paths[1:]:
                self.assertEqual(paths[0].read_bytes(), path.read_bytes())

    def test_only_some_layers_on_text(self):
        path = self.quantize("--method", "gptq", "--text", self.short, "--layers", "1-2", *ONE)
        self.assertEqual({layer for layer, _ in methods_of(path)}, {1, 2})


class Rescaling(MethodTest):
    """Up's rows against down's columns: the file's matrices are not the model's, their figures are."""

    def setUp(self):
        super().setUp()
        self.trained = support.decode_packed(self.quantize("--weights", "bf16"))
        self.options = ["--method", "mse", "--calibration", CALIBRATION, *ONE]
        self.path = self.quantize(*self.options)

    def unpacked(self, *options):
        run("unpack", self.path, "-o", self.dir / "out.safetensors", "--quiet", *options)
        return load_file(self.dir / "out.safetensors")

    def test_unpack_gives_the_models_matrices(self):
        stored, plain = self.unpacked("--integers"), self.unpacked()
        factors = {name: f for name, f in stored.items() if name.endswith(".rescale")}
        self.assertEqual(len(factors), 4)
        self.assertTrue(any((f != 1).any() for f in factors.values()))
        for name, weights in plain.items():
            trained = self.trained[name]
            self.assertLess(np.linalg.norm(weights - trained), 0.12 * np.linalg.norm(trained), name)
            if "up_proj" not in name or (factors[name + ".rescale"] == 1).all():
                continue
            kept = stored[name].astype(np.float32) * np.repeat(stored[name + ".scale"], 32, axis=1)
            np.testing.assert_array_equal(weights, kept / factors[name + ".rescale"][:, None])
            self.assertGreater(np.linalg.norm(kept - trained), 0.12 * np.linalg.norm(trained), name)

    def test_the_report_divides_the_factors_out(self):
        out = self.dir / "report.json"
        run("report", TINY, self.path, "--calibration", CALIBRATION, "--json", out)
        report = read_json("report", out)
        self.assertEqual([f for f in report["findings"] if f["severity"] != "info"], [])
        plain = self.unpacked()
        for layer in report["layers"]:
            for matrix, figures in layer["matrices"].items():
                name = f"model.layers.{layer['layer']}.mlp.{matrix}_proj.weight"
                trained = self.trained[name]
                error = np.linalg.norm(plain[name] - trained) / np.linalg.norm(trained)
                self.assertAlmostEqual(figures["weight_relative_rmse"], error, places=6)

    def test_it_can_be_turned_off_and_rtn_never_does_it(self):
        without = self.dir / "without.safetensors"
        run("quantize", TINY, "-o", without, *self.options, "--no-rescale")
        for path in (without, self.quantize()):
            with safe_open(path, framework="np") as opened:
                self.assertFalse([name for name in opened.keys() if "rescale" in name])

    def test_float_formats_are_left_alone(self):
        path = self.quantize(*self.options, "--override", "1:down=bf16", "--override", "2:up=f32")
        with safe_open(path, framework="np") as opened:
            names = {name for name in opened.keys() if "rescale" in name}
        self.assertEqual(names, {"layers.0.rescale", "layers.3.rescale"})


class Refusals(support.CommandTest):
    def refused(self, *options, status=1):
        path = self.dir / "packed.safetensors"
        error = run("quantize", TINY, "-o", path, *options, status=status).error
        self.assertFalse(path.exists())
        self.assertFalse((self.dir / "packed.safetensors.partial").exists())
        return error

    def test_a_method_without_calibration(self):
        for method in ("mse", "gptq"):
            error = self.refused("--method", method)
            for option in ("--tokens", "--text", "--calibration"):
                self.assertIn(option, error)

    def test_a_text_without_a_method(self):
        self.assertIn("--method rtn", self.refused("--text", TEXT))

    def test_resume_without_a_text(self):
        self.assertIn("--resume", self.refused("--resume"))

    def test_an_unknown_method(self):
        self.assertIn("known: rtn, mse, gptq", self.refused("--method", "awq", status=2))

    def test_tokens_that_the_model_does_not_have(self):
        tokens = self.dir / "tokens.npy"
        np.save(tokens, np.array([1, 2, 256], np.int32))
        self.assertIn("256", self.refused("--method", "gptq", "--tokens", tokens))

    def test_nan_in_the_calibration(self):
        inputs = load_file(CALIBRATION)
        inputs["model.layers.3.mlp.input"][5, 7] = np.nan
        bad = self.dir / "bad.safetensors"
        save_file(inputs, bad)
        error = self.refused("--method", "gptq", "--calibration", bad)
        self.assertIn("model.layers.3.mlp.input [5, 7] is nan", error)

    def test_a_model_without_attention(self):
        model = self.dir / "llama"
        support.write_llama(model, 32, 64, 2, np.random.default_rng(1))
        path = self.dir / "packed.safetensors"
        run("quantize", model, "-o", path, "--method", "gptq", "--text", TEXT, status=1)
        self.assertEqual(self.files(), ["llama"])


class Budget(MethodTest):
    def layers(self, *options):
        path = self.quantize("--text", self.short, *ONE, *options)
        return support.run_json("inspect", "inspect", path, "--json")

    def test_bits_are_used_and_not_exceeded(self):
        for bits in (4.6, 6):
            found = self.layers("--bits", bits)
            stored = sum(m["bytes"] for l in found["layers"] for m in l["matrices"].values())
            weights = sum(
                m["shape"][0] * m["shape"][1]
                for l in found["layers"]
                for m in l["matrices"].values()
            )
            self.assertLessEqual(8 * stored / weights, bits)
            self.assertGreater(8 * stored / weights, bits - 0.4)

    def test_it_says_what_it_chose_why_and_both_losses(self):
        path = self.dir / "packed.safetensors"
        options = ["--method", "gptq", "--text", self.short, "--bits", "5", *ONE]
        text = run("quantize", TINY, "-o", path, *options).stdout
        self.assertRegex(text, r"formats chosen: [\d.]+ bits per weight; \d+ x q")
        self.assertRegex(text, r"layer \d (gate|up|down): predicted loss [\d.e-]+, with q")
        self.assertRegex(text, r"predicted loss, KL divergence .*: [\d.e-]+\n")
        self.assertRegex(text, r"measured, all together by gptq, .*: [\d.e-]+\n")

    def test_a_smaller_loss_takes_more_bytes(self):
        sizes = []
        for loss in (0.1, 0.001):
            path = self.quantize("--text", self.short, "--max-error", loss, *ONE)
            sizes.append(path.stat().st_size)
        self.assertLess(sizes[0], sizes[1])

    def test_budgets_that_cannot_be_met_or_contradict(self):
        path = self.dir / "x"
        few = ["--text", self.short, "--bits", "3", *ONE]
        error = run("quantize", TINY, "-o", path, *few, status=1).error
        self.assertIn("bits per weight", error)
        run("quantize", TINY, "-o", path, "--text", TEXT, "--bits=5", "--size=1MB", status=2)
        run("quantize", TINY, "-o", path, "--text", TEXT, "--bits=5", "--down=qc8w", status=2)
        self.assertIn("--text", run("quantize", TINY, "-o", path, "--bits", "5", status=1).error)
        self.assertFalse(path.exists())


class Resume(support.CommandTest):
    def setUp(self):
        super().setUp()
        self.text = self.dir / "text.txt"
        self.text.write_bytes(TEXT.read_bytes())
        self.options = ["--method", "gptq", "--text", self.text, *ONE]
        self.path = self.dir / "packed.safetensors"
        self.partial = self.dir / "packed.safetensors.partial"

    def kill_after(self, layer):
        """Kills a run when it has finished `layer`."""
        command = [*SLUICE, "quantize", TINY, "-o", self.path, *self.options]
        with subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL) as process:
            while not (self.partial / f"layer-{layer}.safetensors").exists():
                self.assertIsNone(process.poll(), "it ended before it could be killed")
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        self.assertFalse(self.path.exists())
        self.assertTrue(self.partial.is_dir())

    def test_a_killed_run_goes_on_to_the_same_bits(self):
        whole = self.dir / "whole.safetensors"
        run("quantize", TINY, "-o", whole, *self.options)
        self.assertFalse((self.dir / "whole.safetensors.partial").exists())
        self.kill_after(1)
        run("quantize", TINY, "-o", self.path, *self.options, "--resume")
        self.assertEqual(self.path.read_bytes(), whole.read_bytes())
        self.assertFalse(self.partial.exists())

    def test_what_a_killed_run_left_is_not_lost(self):
        self.kill_after(0)
        error = run("quantize", TINY, "-o", self.path, *self.options, status=1).error
        self.assertIn("--resume", error)
        other = [*self.options, "--resume", "--down", "qc8w"]
        error = run("quantize", TINY, "-o", self.path, *other, status=1).error
        self.assertIn("another job", error)
        self.assertTrue((self.partial / "layer-0.safetensors").exists())
        self.assertFalse(self.path.exists())

    def test_a_damaged_remainder_is_refused(self):
        self.kill_after(1)
        layer = self.partial / "layer-0.safetensors"
        layer.write_bytes(layer.read_bytes()[:-100])
        error = run("quantize", TINY, "-o", self.path, *self.options, "--resume", status=1).error
        self.assertIn("layer-0.safetensors", error)


if __name__ == "__main__":
    unittest.main()
