#!/usr/bin/env python3
"""`sluice report` and `quantize --report`: figures against NumPy, and the forms they come in."""

import contextlib
import html.parser
import json
import math
import re
import sys
import types
import unittest.mock

import numpy as np
import support
from safetensors.numpy import load_file, save_file
from support import CALIBRATION, TINY, read_json, relative_l2, run

NAME = "model.layers.{}.mlp.{}_proj.weight"


class PageParser(html.parser.HTMLParser):
    """Checks that tags nest, and gathers the text."""

    VOID = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags = [], [], set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attributes), attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def read_page(path):
    page = PageParser()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert page.open == [], page.open
    return page


class FakeTensor:
    """As much of torch.Tensor as docs/CALIBRATION.md uses."""

    def __init__(self, values):
        self.values = values

    def detach(self):
        return self

    cpu = clone = detach

    def float(self):
        return FakeTensor(self.values.astype(np.float32))

    def flatten(self, first, last):
        assert (first, last) == (0, -2)
        return FakeTensor(self.values.reshape(-1, self.values.shape[-1]))


def fake_torch(folder, inputs):
    """Modules for docs/CALIBRATION.md to import: a model whose layer N is given inputs[N]."""
    hooks = []
    layer = types.SimpleNamespace(mlp=types.SimpleNamespace(register_forward_pre_hook=hooks.append))

    def forward(**_):
        for hook, x in zip(hooks, inputs, strict=True):
            hook(None, (FakeTensor(x),))

    forward.model = types.SimpleNamespace(layers=[layer] * len(inputs))

    def save(tensors, name):
        save_file({key: tensor.values for key, tensor in tensors.items()}, folder / name)

    def loads(what):
        return types.SimpleNamespace(from_pretrained=lambda _: what)

    return {
        "torch": types.SimpleNamespace(no_grad=contextlib.nullcontext),
        "safetensors.torch": types.SimpleNamespace(save_file=save),
        "transformers": types.SimpleNamespace(
            AutoModelForCausalLM=loads(forward), AutoTokenizer=loads(lambda *_, **__: {})
        ),
    }


class Report(support.CommandTest):
    def report(self, packed, *options, model=TINY):
        out = self.dir / "report.json"
        run("report", model, packed, "--json", out, "--quiet", *options)
        return read_json("report", out)

    def test_figures_agree_with_numpy(self):
        packed = self.quantize("--weights", "f32", "--up", "qb4w:32")
        report = self.report(packed, "--calibration", CALIBRATION)
        trained = self.trained()
        stored = support.decode_packed(packed)
        inputs = load_file(CALIBRATION)
        for layer in report["layers"]:
            i = layer["layer"]
            x = inputs[f"model.layers.{i}.mlp.input"]
            self.assertEqual(layer["tokens"], x.shape[0])
            gate, up, down = (trained[NAME.format(i, m)] for m in ("gate", "up", "down"))
            exact = support.swiglu(x, gate, up, down)
            only_up = support.swiglu(x, gate, stored[NAME.format(i, "up")], down)
            self.assertAlmostEqual(
                layer["attribution"]["up"], relative_l2(only_up, exact), delta=1e-9
            )
            self.assertEqual(layer["attribution"]["gate"], 0)
            self.assertEqual(layer["attribution"]["down"], 0)
            self.assertGreater(layer["attribution"]["input_activations"], 0)
            self.assertEqual(layer["attribution"]["hidden_activations"], 0)
            matrix = layer["matrices"]["up"]
            weights, quantized = trained[NAME.format(i, "up")], stored[NAME.format(i, "up")]
            self.assertAlmostEqual(
                matrix["weight_relative_rmse"], relative_l2(quantized, weights), delta=1e-9
            )
            self.assertAlmostEqual(
                matrix["weight_max_abs_error"],
                np.abs(quantized.astype(np.float64) - weights).max(),
                delta=1e-12,
            )
            self.check_output(layer, packed, x, exact)
        errors = [layer["output"]["relative_l2"] for layer in report["layers"]]
        self.assertAlmostEqual(report["totals"]["relative_l2_mean"], np.mean(errors))
        self.assertEqual(report["totals"]["relative_l2_max"], max(errors))

    def trained(self):
        """The bundled model's weights; NumPy has no bf16, so `unpack` of bf16 is the way."""
        packed = self.quantize("--weights", "bf16", name="trained.safetensors")
        return support.decode_packed(packed)

    def check_output(self, layer, packed, x, exact):
        """The output's figures, from what `sluice run` computes."""
        inputs = self.save("x.safetensors", x=x)
        y_path = self.dir / "y.safetensors"
        run("run", packed, "--layer", layer["layer"], "--input", inputs, "--output", y_path, "--quiet")
        y = load_file(y_path)["y"].astype(np.float64)
        output = layer["output"]
        error = np.linalg.norm(y - exact, axis=1)
        norm = np.linalg.norm(exact, axis=1)
        cosine = np.sum(y * exact, axis=1) / np.linalg.norm(y, axis=1) / norm
        self.assertAlmostEqual(output["relative_l2"], relative_l2(y, exact), delta=1e-9)
        self.assertEqual(output["relative_l2"], layer["attribution"]["all"])
        self.assertAlmostEqual(output["sqnr_db"], -20 * math.log10(relative_l2(y, exact)), delta=1e-6)
        self.assertAlmostEqual(output["cosine_mean"], cosine.mean(), delta=1e-9)
        self.assertAlmostEqual(output["cosine_min"], cosine.min(), delta=1e-9)
        self.assertAlmostEqual(output["max_abs_error"], np.abs(y - exact).max(), delta=1e-9)
        self.assertEqual(output["worst_token"], int(np.argmax(error / norm)))

    def test_quantize_and_report_say_the_same(self):
        first = self.dir / "first.json"
        options = ["--weights", "qb4w:64", "--calibration", CALIBRATION, "--report", first]
        packed = self.quantize(*options)
        second = self.report(packed, "--calibration", CALIBRATION)
        self.assertEqual(read_json("report", first), second)

    def test_an_ungated_block(self):
        model = self.dir / "bert"
        support.write_bert(model, 48, 96, 2, np.random.default_rng(1))
        report = self.report(self.quantize(model=model), model=model)
        self.assertEqual(list(report["layers"][0]["matrices"]), ["up", "down"])
        self.assertNotIn("gate", report["layers"][0]["attribution"])

    def test_an_exact_block_has_no_signal_to_noise_ratio(self):
        """Weights of zero only: y and ŷ are 0, the error is none, its ratio not finite."""

        def zero(tensors):
            for values in tensors.values():
                values[:] = 0

        model = self.dir / "model"
        support.write_llama(model, 32, 64, 1, np.random.default_rng(1), zero)
        packed = self.quantize(model=model)
        report = self.report(packed, model=model)
        self.assertEqual(report["layers"][0]["output"]["relative_l2"], 0)
        self.assertIsNone(report["layers"][0]["output"]["sqnr_db"])
        self.assertIn("zero", " ".join(report["warnings"]))
        run("report", model, packed, "--html", self.dir / "r.html")
        self.assertIn("exactly", " ".join(read_page(self.dir / "r.html").text))

    def test_random_inputs_are_loud_everywhere(self):
        page = self.dir / "r.html"
        packed = self.quantize()
        text = run("report", TINY, packed, "--html", page).stdout
        self.assertIn("RANDOM INPUTS", text)
        self.assertIn("RANDOM INPUTS", " ".join(read_page(page).text))
        report = self.report(packed)
        self.assertEqual(report["calibration"]["source"], "random")
        self.assertIn("RANDOM INPUTS", report["warnings"][0])
        text = run("report", TINY, packed, "--html", page, "--calibration", CALIBRATION).stdout
        self.assertNotIn("RANDOM", text + " ".join(read_page(page).text))

    def test_a_source_that_was_quantized_before_is_loud(self):
        model, page, out = (self.dir / name for name in ("model.gguf", "r.html", "r.json"))
        support.write_gguf(model, 64, 96, 2, np.random.default_rng(1))
        packed = self.dir / "packed.safetensors"
        bytes_before = 2 * 3 * 64 * 96 * 34 // 32
        told = r"QUANTIZED SOURCE: all 6 matrices were integers before: Q8_0\."
        size = "The source stores them in 39.2 kB as Q8_0: 1.89 times as much."
        for report in ([], ["--report", page, "--report", out]):
            text = run("quantize", model, "-o", packed, "--force", *report).stdout
            self.assertRegex(text, "(?m)^  !! " + told)
            self.assertIn(size, " ".join(text.split()))
        page.unlink()
        out.unlink()
        text = run("report", model, packed, "--html", page, "--json", out).stdout
        self.assertRegex(text, "(?m)^  !! " + told)
        self.assertIn(size, " ".join(text.split()))
        shown = " ".join(read_page(page).text)
        self.assertRegex(shown, told)
        self.assertIn("39.2 kB in the source", shown)
        source = {"types": {"Q8_0": 6}, "bytes": bytes_before, "quantized": 6}
        self.assertEqual(read_json("report", out)["source"], source)

    def test_a_source_of_floats_is_not(self):
        packed, page = self.quantize("--layers", "1-2"), self.dir / "r.html"
        source = self.report(packed)["source"]
        self.assertEqual(source["quantized"], 0)
        self.assertEqual(sum(source["types"].values()), 6)
        text = run("report", TINY, packed, "--html", page).stdout
        self.assertNotIn("QUANTIZED SOURCE", text + page.read_text(encoding="utf-8"))

    def test_backends(self):
        packed = self.quantize("--weights", "qc8w")
        highway = self.report(packed, "--calibration", CALIBRATION)
        reference = self.report(packed, "--calibration", CALIBRATION, "--backend", "reference")
        self.assertEqual(
            [layer["output"] for layer in highway["layers"]],
            [layer["output"] for layer in reference["layers"]],
        )
        xnnpack = self.report(packed, "--calibration", CALIBRATION, "--backend", "xnnpack")
        self.assertIn("qd8", xnnpack["backend"])
        self.assertIn("qd8", " ".join(xnnpack["warnings"]))
        packed = self.quantize("--weights", "qb8w:32")
        error = run("report", TINY, packed, "--backend", "xnnpack", status=1).error
        self.assertIn("qb8w:32", error)

    def test_the_page(self):
        page = self.dir / "r.html"
        packed = self.quantize("--down", "qc8w", "--override", "1:down=qb8w:32")
        run("report", TINY, packed, "--html", page, "--calibration", CALIBRATION)
        parsed = read_page(page)
        self.assertFalse(parsed.tags & {"script", "link", "img", "iframe", "object"})
        text = " ".join(parsed.text)
        for shown in ("tiny-llama", "qb8w:32", "sluice report", "hidden activations", "352 × 128"):
            self.assertIn(shown, text)
        source = page.read_text(encoding="utf-8")
        for outside in ("http:", "https:", "url(", "src=", "@import"):
            self.assertNotIn(outside, source)

    def test_names_from_outside_are_escaped(self):
        model = self.dir / "<script>alert(1)<" / "b>&'\""
        support.write_llama(model, 32, 32, 1, np.random.default_rng(1))
        page = self.dir / "r.html"
        run("report", model, self.quantize(model=model), "--html", page)
        parsed = read_page(page)
        self.assertNotIn("script", parsed.tags)
        self.assertIn("<script>alert(1)<", " ".join(parsed.text))

    def test_a_model_that_does_not_fit(self):
        other = self.dir / "other"
        support.write_llama(other, 64, 352, 4, np.random.default_rng(1))
        error = run("report", other, self.quantize(), status=1).error
        self.assertIn("packed.safetensors", error)
        few = self.dir / "few"
        support.write_llama(few, 128, 352, 2, np.random.default_rng(1))
        self.assertIn("layer 2", run("report", few, self.quantize(), status=1).error)

    def test_the_documented_hook_makes_calibration(self):
        text = (support.TREE / "docs/CALIBRATION.md").read_text(encoding="utf-8")
        script = re.search(r"```python\n(.*?)```", text, re.S)[1]
        rng = np.random.default_rng(1)
        inputs = [rng.standard_normal((1, 9, 128)) for _ in range(4)]
        (self.dir / "text.txt").write_text("some text", encoding="utf-8")
        opened = script.replace('"text.txt"', repr(str(self.dir / "text.txt")))
        with unittest.mock.patch.dict(sys.modules, fake_torch(self.dir, inputs)):
            exec(opened, {})
        made = load_file(self.dir / "inputs.safetensors")
        np.testing.assert_array_equal(
            made["model.layers.2.mlp.input"], inputs[2][0].astype(np.float32)
        )
        report = self.report(self.quantize(), "--calibration", self.dir / "inputs.safetensors")
        self.assertEqual(report["calibration"]["tokens"], 9)
        self.assertEqual(report["warnings"], [])

    def test_a_packed_file_is_no_checkpoint(self):
        packed = self.quantize()
        told = f"{packed}: is a packed file of sluice, not a checkpoint"
        self.assertEqual(run("report", packed, TINY, status=1).error, told)
        out = self.dir / "again.safetensors"
        self.assertEqual(run("quantize", packed, "-o", out, status=1).error, told)
        (self.dir / "config.json").write_bytes((TINY / "config.json").read_bytes())
        self.assertEqual(run("quantize", packed, "-o", out, status=1).error, told)

    def test_damage_is_not_called_quantization_error(self):
        packed = self.quantize()
        damaged = bytearray(packed.read_bytes())
        damaged[-100] ^= 1
        packed.write_bytes(damaged)
        error = run("report", TINY, packed, "--json", self.dir / "r.json", status=1).error
        self.assertIn("checksum", error)
        self.assertEqual(self.files(), ["packed.safetensors"])

    def test_outputs_appear_together_or_not_at_all(self):
        packed = self.quantize()
        out = self.dir / "r.json"
        error = run(
            *["report", TINY, packed, "--json", out, "--html", "/no/such/folder/r.html"], status=1
        ).error
        self.assertIn("/no/such/folder/r.html", error)
        before = packed.read_bytes()
        run("report", TINY, packed, "--json", packed, status=1)
        run("report", TINY, packed, "--json", TINY / "config.json", status=1)
        run("report", TINY, packed, "--json", out, "--html", out, status=1)
        self.assertEqual(packed.read_bytes(), before)
        self.assertEqual(self.files(), ["packed.safetensors"])
        json.loads((TINY / "config.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    support.main()
