#!/usr/bin/env python3
"""sluice eval: perplexity and divergence of packed files, on the bundled model and on its fixtures."""

import importlib.util
import json
import math
import pathlib
import shutil
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

from support import CALIBRATION, TINY, TREE, read_json, run, write_llama

TEXT = TINY / "heldout.txt"


def load_reference():
    """tests/data/evaluate.py, which computes the bundled model in float64 with NumPy alone."""
    spec = importlib.util.spec_from_file_location("evaluate", TREE / "tests/data/evaluate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference_perplexity(text, context):
    """Of windows that share nothing, every prediction inside a window scored."""
    reference = load_reference()
    config = json.loads((TINY / "config.json").read_text(encoding="utf-8"))
    weights = reference.read_safetensors(TINY / "model.safetensors")
    nats = []
    for start in range(0, len(text), context):
        window = np.frombuffer(text[start : start + context], np.uint8)
        logits, _ = reference.forward(window, weights, config)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        nats += list(-logs[np.arange(len(window) - 1), window[1:]])
    return math.exp(np.mean(nats)), len(nats)


class Eval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-test."))
        cls.files = {}
        for name in ("f32", "qc8w", "qb4w:32", "qc4w"):
            cls.files[name] = cls.folder / (name.replace(":", "_") + ".safetensors")
            run("quantize", TINY, "-o", cls.files[name], "--weights", name, "--quiet")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def eval(self, *arguments):
        path = self.folder / "eval.json"
        run("eval", *arguments, "--json", path)
        return read_json("eval", path)

    def test_several_files_in_one_pass(self):
        result = self.eval(TINY, *self.files.values(), "--text", TEXT, "--context", 200)
        expected, predictions = reference_perplexity(TEXT.read_bytes(), 200)
        self.assertEqual(result["predictions"], predictions)
        self.assertEqual(result["tokens"], len(TEXT.read_bytes()))
        self.assertEqual(result["context"], 200)
        self.assertAlmostEqual(result["fp32"]["perplexity"], expected, delta=1e-4)
        self.assertEqual([f["file"] for f in result["files"]], list(map(str, self.files.values())))
        f32, int8, blocks4, rows4 = result["files"]
        self.assertLess(f32["kl"]["max"], 1e-5)
        self.assertEqual(f32["top1_agreement"], 1)
        self.assertAlmostEqual(f32["perplexity"], expected, delta=1e-4)
        self.assertLess(1e-5, int8["kl"]["mean"])
        self.assertLess(10 * int8["kl"]["mean"], blocks4["kl"]["mean"])
        self.assertLess(blocks4["kl"]["mean"], rows4["kl"]["mean"])
        self.assertLess(rows4["top1_agreement"], blocks4["top1_agreement"])
        self.assertLess(expected, blocks4["perplexity"])
        self.assertEqual(blocks4["bits_per_weight"], 4.5)
        for file in result["files"]:
            kl, positions = file["kl"], file["per_position"]
            self.assertLessEqual(kl["median"], kl["p99"])
            self.assertLessEqual(kl["p99"], kl["max"])
            self.assertEqual(len(positions), 199)
            # All windows but the last have every position, so their mean nearly is the mean.
            self.assertAlmostEqual(np.mean(positions), kl["mean"], delta=0.1 * kl["mean"] + 1e-7)

    def test_alone_or_together_and_threads_change_nothing(self):
        arguments = ["--text", TEXT, "--context", 256]
        together = self.eval(TINY, self.files["qc8w"], self.files["qb4w:32"], *arguments)
        alone = self.eval(TINY, self.files["qb4w:32"], *arguments, "--threads", 1)
        self.assertEqual(alone["files"][0], together["files"][1])
        self.assertEqual(alone["fp32"], together["fp32"])

    def test_tokens_are_what_the_text_is(self):
        ids = np.frombuffer(TEXT.read_bytes(), np.uint8)
        text = self.eval(TINY, "--text", TEXT)
        for name, write in (
            ("i4.npy", lambda p: np.save(p, ids.astype(np.int32))),
            ("i8.npy", lambda p: np.save(p, ids.astype(np.int64))),
            ("t.safetensors", lambda p: save_file({"tokens": ids.astype(np.int32)}, p)),
        ):
            write(self.folder / name)
            tokens = self.eval(TINY, "--tokens", self.folder / name)
            self.assertEqual(tokens["fp32"], text["fp32"], name)
            self.assertEqual(tokens["source"], str(self.folder / name))

    def test_rows_of_tokens_are_texts_of_their_own(self):
        ids = np.frombuffer(TEXT.read_bytes(), np.uint8)[:6000].astype(np.int32)
        np.save(self.folder / "flat.npy", ids)
        np.save(self.folder / "rows.npy", ids.reshape(60, 100))
        flat = self.eval(TINY, "--tokens", self.folder / "flat.npy", "--context", 100)
        rows = self.eval(TINY, "--tokens", self.folder / "rows.npy", "--context", 512)
        self.assertEqual(rows["fp32"], flat["fp32"])

    def test_some_layers(self):
        path = self.folder / "some.safetensors"
        run("quantize", TINY, "-o", path, "--layers", "1-2", "--quiet")
        result = run("eval", TINY, path, "--text", TEXT, "--json", self.folder / "some.json")
        self.assertIn("has 2 of the model's 4 layers", result.warnings[0])
        some = read_json("eval", self.folder / "some.json")["files"][0]
        every = self.eval(TINY, self.files["qb4w:32"], "--text", TEXT)["files"][0]
        self.assertEqual(some["layers"], 2)
        self.assertLess(some["kl"]["mean"], every["kl"]["mean"])

    def test_table(self):
        out = run("eval", TINY, self.files["qc8w"], "--text", TEXT).stdout
        self.assertRegex(out, r"6168 tokens in windows of 512, 6155 predictions")
        self.assertRegex(out, r"(?m)^  FP32 +32 +3\.\d+ ")
        self.assertRegex(out, r"(?m)^  \S+qc8w.safetensors +8\.\d\d +3\.\d+ .* %$")
        self.assertEqual(run("eval", TINY, "--text", TEXT, "--quiet").stdout, "")

    def test_usage(self):
        run("eval", TINY, status=2)
        run("eval", TINY, "--text", TEXT, "--tokens", "t.npy", status=2)
        run("eval", TINY, "--text", TEXT, "--context", 0, status=2)

    def test_errors(self):
        one = self.folder / "one.npy"
        np.save(one, np.zeros(1, np.int32))
        self.assertIn("nothing is predicted", run("eval", TINY, "--tokens", one, status=1).error)
        np.save(one, np.full(3, 256, np.int32))
        self.assertIn("token 0 is 256", run("eval", TINY, "--tokens", one, status=1).error)
        missing = self.folder / "missing.npy"
        self.assertIn(str(missing), run("eval", TINY, "--tokens", missing, status=1).error)
        # Feed-forward tensors alone are no model that runs.
        write_llama(self.folder / "blocks", 128, 352, 4, np.random.default_rng(1))
        blocks = run("eval", self.folder / "blocks", "--text", TEXT, status=1)
        self.assertIn("no embedding", blocks.error)
        packed = self.files["qc8w"]
        self.assertIn("packed file", run("eval", packed, "--text", TEXT, status=1).error)
        self.assertIn("quantize it first", run("eval", TINY, TINY / "config.json", "--text", TEXT, status=1).error)

    def test_output_stays_off_the_inputs(self):
        error = run("eval", TINY, "--text", TEXT, "--json", TEXT, status=1).error
        self.assertIn("would be overwritten", error)

    def test_other_model_is_refused(self):
        folder = self.folder / "other"
        write_llama(folder, 64, 96, 2, np.random.default_rng(1))
        run("quantize", folder, "-o", self.folder / "other.safetensors", "--quiet")
        error = run("eval", TINY, self.folder / "other.safetensors", "--text", TEXT, status=1).error
        self.assertIn("layer 0 is 64 wide", error)


class Capture(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-test."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "inputs.safetensors"

    def capture(self, *arguments):
        run("capture", TINY, "--text", TEXT, "--context", 256, "-o", self.path, *arguments)
        return load_file(self.path)

    def test_inputs_are_pytorchs(self):
        captured = self.capture("--sample", 10**6)
        np.testing.assert_array_equal(captured["positions"], np.arange(6168))
        for name, rows in load_file(CALIBRATION).items():
            error = np.linalg.norm(captured[name][: len(rows)] - rows) / np.linalg.norm(rows)
            self.assertLess(error, 5e-6, name)

    def test_statistics_are_over_all_tokens(self):
        captured = self.capture("--sample", 10**6)
        model = load_reference().read_safetensors(TINY / "model.safetensors")
        for n in range(4):
            base = f"model.layers.{n}.mlp"
            x = captured[f"{base}.input"].astype(np.float64)
            gate, up = (x @ model[f"{base}.{m}_proj.weight"].T for m in ("gate", "up"))
            hidden = gate / (1 + np.exp(-gate)) * up
            for what, values in (("input", x), ("hidden", hidden)):
                moments = captured[f"{base}.{what}.second_moment"]
                np.testing.assert_allclose(moments, (values**2).mean(0), rtol=1e-4)
                largest = captured[f"{base}.{what}.max_abs"]
                np.testing.assert_allclose(largest, np.abs(values).max(0), rtol=1e-4)

    def test_sample(self):
        everything = self.capture("--sample", 10**6)
        some = self.capture("--sample", 50)
        positions = some["positions"]
        self.assertEqual(len(set(positions)), 50)
        self.assertTrue((np.diff(positions) > 0).all())
        # They come from the whole text.
        self.assertLess(positions[0], 1500)
        self.assertGreater(positions[-1], 4500)
        for name, values in everything.items():
            if name.endswith(".input"):
                np.testing.assert_array_equal(some[name], values[positions])
            elif name != "positions":
                np.testing.assert_array_equal(some[name], values)
        again = self.capture("--sample", 50)
        np.testing.assert_array_equal(again["positions"], positions)
        other = self.capture("--sample", 50, "--seed", 2)
        self.assertFalse(np.array_equal(other["positions"], positions))

    def test_is_a_calibration(self):
        self.capture("--sample", 100)
        packed, report = self.folder / "packed.safetensors", self.folder / "report.json"
        run("quantize", TINY, "-o", packed, "--calibration", self.path, "--report", report)
        figures = read_json("report", report)
        self.assertEqual(figures["calibration"], {"source": str(self.path), "tokens": 100})
        self.assertEqual(figures["warnings"], [])

    def test_errors_leave_no_file(self):
        ids = self.folder / "ids.npy"
        np.save(ids, np.full(3, 999, np.int32))
        run("capture", TINY, "--tokens", ids, "-o", self.path, status=1)
        self.assertEqual(list(self.folder.iterdir()), [ids])
        run("capture", TINY, "-o", self.path, status=2)
        self.assertIn("would be overwritten", run("capture", TINY, "--text", ids, "-o", ids, status=1).error)


if __name__ == "__main__":
    unittest.main()
