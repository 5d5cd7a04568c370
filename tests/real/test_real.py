#!/usr/bin/env python3
"""The main job on real models: quantize, inspect, unpack, run, report, and the memory it takes.

    test_real.py [--model NAME]...

Downloads the models by their package names where they are not cached. Ends with the number of checks
that passed and failed, and exits 1 if any failed.
"""

import argparse
import math
import pathlib
import sys
import tempfile
import unittest

import models
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "quant/cli"))
import gguf_numpy  # noqa: E402
import memory  # noqa: E402
import support  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402
from support import relative_l2, run, run_json  # noqa: E402

MEGABYTE = 1_000_000
MIB = 1 << 20
MIX = ["--gate", "qb4w:32", "--up", "qb4w:64", "--down", "qc8w"]
ERF = np.vectorize(math.erf)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu(x):
    return x * (1 + ERF(x / math.sqrt(2))) / 2


def linear(x, tensors, name):
    y = x @ tensors[name + ".weight"].astype(np.float64).T
    return y + tensors[name + ".bias"] if name + ".bias" in tensors else y


class RealModel:
    """The checks, each for a model and three choices of formats."""

    mix = MIX

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-real.")
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)
        cls.model = models.ALL[cls.name]()
        cls.choices = {
            "qb4w:32": ["--weights", "qb4w:32"],
            "qc8w": ["--weights", "qc8w"],
            "mix": cls.mix,
        }
        cls.packed = {}
        for name, options in cls.choices.items():
            cls.packed[name] = cls.dir / f"{name.replace(':', '-')}.safetensors"
            run("quantize", cls.model, "-o", cls.packed[name], *options, "--strict")

    def formats(self, choice):
        up, down = {"qb4w:32": ("qb4w:32",) * 2, "qc8w": ("qc8w",) * 2, "mix": ("qb4w:64", "qc8w")}[
            choice
        ]
        formats = {"up": up, "down": down}
        if self.gated:
            formats["gate"] = up if choice != "mix" else "qb4w:32"
        return formats

    def check_layers(self, document):
        self.assertEqual(len(document["layers"]), self.layers)
        for i, layer in enumerate(document["layers"]):
            self.assertEqual(
                (layer["layer"], layer["d_model"], layer["d_ff"]), (i, self.d, self.m)
            )
            self.assertEqual((layer["activation"], layer["gated"]), (self.activation, self.gated))
        weights = self.layers * (3 if self.gated else 2) * self.d * self.m
        biases = self.layers * (self.d + self.m) if self.biases else 0
        self.assertEqual(document["totals"]["ffn_parameters"], weights + biases)
        self.assertEqual(document["totals"]["flops_per_token"], 2 * weights)

    def test_inspect_the_model(self):
        document = run_json("inspect", "inspect", self.model, "--json", "--verify")
        self.check_layers(document)
        self.assertEqual(document["architecture"], self.architecture)
        types = {m["type"] for layer in document["layers"] for m in layer["matrices"].values()}
        self.assertEqual(types, self.types)

    def test_inspect_the_packed_files(self):
        for choice, path in self.packed.items():
            document = run_json("inspect", "inspect", path, "--json", "--verify")
            self.check_layers(document)
            for layer in document["layers"]:
                got = {name: matrix["type"] for name, matrix in layer["matrices"].items()}
                self.assertEqual(got, self.formats(choice))

    def test_the_packed_files_open_in_python(self):
        for path in self.packed.values():
            with safe_open(path, framework="np") as opened:
                self.assertEqual(opened.metadata()["format"], "sluice")
                count = 0
                for name in opened.keys():
                    count += opened.get_tensor(name).nbytes if "scale" not in name else 0
            self.assertGreater(count, self.layers * 2 * self.d * self.m // 2)

    def test_unpack_agrees_with_numpy(self):
        for path in self.packed.values():
            for options in ([], ["--integers"]):
                out = self.dir / "unpacked.safetensors"
                run("unpack", path, "-o", out, *options, "--quiet")
                expected = support.decode_packed(path, integers=bool(options))
                support.assert_same_tensors(load_file(out), expected)

    def test_f32_is_what_the_model_holds(self):
        path = self.dir / "f32.safetensors"
        run("quantize", self.model, "-o", path, "--weights", "f32", "--quiet")
        out = self.dir / "unpacked.safetensors"
        run("unpack", path, "-o", out, "--quiet")
        path.unlink()
        got = load_file(out)
        expected = self.source()
        self.assertEqual(sorted(got), sorted(expected))
        for name, values in got.items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-6, atol=1e-8, err_msg=name)

    def test_run_agrees_with_numpy(self):
        x = np.random.default_rng(7).standard_normal((32, self.d)).astype(np.float32)
        save_file({"x": x}, self.dir / "x.safetensors")
        y = self.dir / "y.safetensors"
        for choice, path in self.packed.items():
            tensors = support.decode_packed(path)
            for layer in (0, self.layers - 1):
                expected = self.evaluate(x.astype(np.float64), tensors, layer)
                for backend in ("highway", "xnnpack", "reference"):
                    where = ["--layer", layer, "--input", self.dir / "x.safetensors", "--output", y]
                    run("run", path, *where, "--backend", backend, "--quiet")
                    limit = 0.02 if choice == "qb4w:32" and backend != "xnnpack" else 0.05
                    error = relative_l2(load_file(y)["y"], expected)
                    self.assertLessEqual(error, limit, f"{choice}, {layer}, {backend}")

    def test_report(self):
        errors = {}
        for choice, path in self.packed.items():
            out = self.dir / "report.json"
            page = self.dir / "report.html"
            text = run("report", self.model, path, "--json", out, "--html", page).stdout
            report = support.read_json("report", out)
            self.assertEqual(len(report["layers"]), self.layers)
            self.assertEqual(report["calibration"]["source"], "random")
            self.assertIn("RANDOM INPUTS", text)
            self.assertIn("RANDOM INPUTS", page.read_text(encoding="utf-8"))
            errors[choice] = report["totals"]["relative_l2_mean"]
            bits = report["totals"]["bits_per_weight"]
            print(f"\n{self.name} {choice}: {bits:.3f} bits/weight, mean error {errors[choice]:.4f}")
        # On random inputs. int8 has 16 times the levels of int4, and no block may be without sense.
        self.assertTrue(0 < errors["qc8w"] < errors["mix"] / 2)
        self.assertLess(errors["qc8w"], errors["qb4w:32"] / 3)
        self.assertLess(max(errors.values()), 0.25)

    def test_peak_memory(self):
        packed = self.dir / "peak.safetensors"
        command = [*support.SLUICE, "quantize", self.model, "-o", packed, "--quiet"]
        quantize = memory.peak_bytes(command)
        x = np.random.default_rng(7).standard_normal((32, self.d)).astype(np.float32)
        save_file({"x": x}, self.dir / "x.safetensors")
        where = ["--layer", "0", "--input", self.dir / "x.safetensors"]
        where += ["--output", self.dir / "y.safetensors"]
        running = memory.peak_bytes([*support.SLUICE, "run", packed, *where])
        size = packed.stat().st_size
        print(
            f"\n{self.name}: peak of quantize {quantize / MEGABYTE:.1f} MB; of run "
            f"{running / MEGABYTE:.1f} MB, the packed file has {size / MEGABYTE:.1f} MB"
        )
        self.assertLess(quantize, self.quantize_limit)
        self.assertLess(running, size + 64 * MIB)


class Gguf(RealModel):
    gated, biases = True, False

    def source(self):
        _, tensors = gguf_numpy.read(self.model)
        return {
            name: decode()
            for name, (_, decode) in tensors.items()
            if any(f".ffn_{m}.weight" in name for m in ("gate", "up", "down"))
        }

    def evaluate(self, x, tensors, layer):
        gate, up = (linear(x, tensors, f"blk.{layer}.ffn_{m}") for m in ("gate", "up"))
        return linear(self.function(gate) * up, tensors, f"blk.{layer}.ffn_down")


class SmolLM2(Gguf, unittest.TestCase):
    name, architecture = "smollm2", "llama"
    layers, d, m, activation = 30, 576, 1536, "silu"
    types = {"Q4_1"}
    function = staticmethod(support.silu)
    quantize_limit = 400 * MEGABYTE


class Gemma3(Gguf, unittest.TestCase):
    name, architecture = "gemma3", "gemma3"
    layers, d, m, activation = 18, 640, 2048, "gelu_tanh"
    types = {"Q5_0", "Q4_K", "Q6_K"}
    function = staticmethod(gelu_tanh)
    quantize_limit = 400 * MEGABYTE


class MiniLM(RealModel, unittest.TestCase):
    name, architecture = "minilm", "bert"
    layers, d, m, activation = 6, 384, 1536, "gelu"
    gated, biases = False, True
    types = {"F32"}
    mix = MIX[2:]
    quantize_limit = 400 * MEGABYTE

    def test_a_gate_is_an_error(self):
        out = self.dir / "gated.safetensors"
        error = run("quantize", self.model, "-o", out, *MIX, status=1).error
        self.assertIn("gate", error)
        self.assertFalse(out.exists())

    def source(self):
        tensors = load_file(self.model / "model.safetensors")
        return {
            name: values
            for name, values in tensors.items()
            if ".dense." in name and ".attention." not in name and "encoder.layer." in name
        }

    def evaluate(self, x, tensors, layer):
        (up,) = [n for n in tensors if n.endswith(f"layer.{layer}.intermediate.dense.weight")]
        (down,) = [n for n in tensors if n.endswith(f"layer.{layer}.output.dense.weight")]
        h = linear(x, tensors, up.removesuffix(".weight"))
        return linear(gelu(h), tensors, down.removesuffix(".weight"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=models.ALL, action="append", help="only this one")
    chosen = parser.parse_args().model or list(models.ALL)
    loader = unittest.TestLoader()
    suite = unittest.TestSuite(
        loader.loadTestsFromTestCase(case)
        for case in (SmolLM2, Gemma3, MiniLM)
        if case.name in chosen
    )
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    failed = len({str(test) for test, _ in result.failures + result.errors})
    # A class whose set-up fails runs none of its checks, but has failed all the same.
    passed = max(result.testsRun - failed, 0)
    print(f"{passed} passed, {failed} failed")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
