#!/usr/bin/env python3
"""`sluice inspect` and `sluice cpu`: what they say, as text and as JSON."""

import json
import unittest

import numpy as np
import support
from support import TINY, run, run_json


class Inspect(support.CommandTest):
    def test_a_checkpoint(self):
        got = run_json("inspect", "inspect", TINY, "--json")
        self.assertEqual(got["model"], str(TINY))
        self.assertEqual(got["architecture"], "llama")
        self.assertEqual([layer["layer"] for layer in got["layers"]], [0, 1, 2, 3])
        layer = got["layers"][2]
        self.assertEqual((layer["d_model"], layer["d_ff"]), (128, 352))
        self.assertEqual((layer["activation"], layer["gated"]), ("silu", True))
        self.assertEqual(layer["activations"], {"input": "f32", "hidden": "f32"})
        self.assertEqual(
            layer["matrices"]["down"],
            {
                "name": "model.layers.2.mlp.down_proj.weight",
                "shape": [128, 352],
                "type": "BF16",
                "bits_per_weight": 16.0,
                "bytes": 2 * 128 * 352,
            },
        )
        weights = 4 * 3 * 128 * 352
        self.assertEqual(
            got["totals"],
            {
                "ffn_parameters": weights,
                "ffn_bytes": 2 * weights,
                "bits_per_weight": 16.0,
                "flops_per_token": 2 * weights,
            },
        )

    def test_a_packed_file(self):
        path = self.quantize("--weights", "qb4w:32", "--down", "qc8w")
        got = run_json("inspect", "inspect", path, "--json")
        layer = got["layers"][0]
        self.assertEqual(layer["activations"], {"input": "block", "hidden": "row"})
        up, down = layer["matrices"]["up"], layer["matrices"]["down"]
        self.assertEqual((up["type"], up["shape"]), ("qb4w:32", [352, 128]))
        self.assertEqual(up["bytes"], 352 * 128 // 2 + 352 * 4 * 2)
        self.assertEqual(up["bits_per_weight"], 4.5)
        self.assertEqual((down["type"], down["bytes"]), ("qc8w", 128 * 352 + 128 * 4))
        per_layer = 2 * up["bytes"] + down["bytes"]
        self.assertEqual(got["totals"]["ffn_bytes"], 4 * per_layer)
        self.assertEqual(got["totals"]["bits_per_weight"], 8 * per_layer / (3 * 128 * 352))
        self.assertEqual(got["totals"]["ffn_parameters"], 4 * 3 * 128 * 352)

    def test_padding_is_counted(self):
        model = self.dir / "model"
        support.write_llama(model, 33, 17, 1, np.random.default_rng(1))
        path = self.quantize("--weights", "qb4w:32", model=model)
        up = run_json("inspect", "inspect", path, "--json")["layers"][0]["matrices"]["up"]
        # 17 rows become 32, 33 columns 64; 32 rows of 2 bf16 scales.
        self.assertEqual(up["bytes"], 32 * 64 // 2 + 32 * 2 * 2)
        self.assertAlmostEqual(up["bits_per_weight"], 8 * up["bytes"] / (17 * 33))

    def test_an_ungated_block_with_biases(self):
        model = self.dir / "bert"
        support.write_bert(model, 32, 64, 2, np.random.default_rng(1))
        for path in (model, self.quantize(model=model)):
            got = run_json("inspect", "inspect", path, "--json")
            self.assertEqual(got["layers"][0]["activation"], "gelu")
            self.assertFalse(got["layers"][0]["gated"])
            self.assertEqual(list(got["layers"][0]["matrices"]), ["up", "down"])
            self.assertEqual(got["totals"]["ffn_parameters"], 2 * (2 * 32 * 64 + 64 + 32))
            self.assertEqual(got["totals"]["flops_per_token"], 2 * 2 * 2 * 32 * 64)

    def test_text(self):
        text = run("inspect", TINY).stdout
        self.assertIn("4 layers of 128 × 352, silu, gated", text)
        self.assertIn("540,672", text)
        self.assertIn("1,081,344", text)
        self.assertIn("model.layers.3.mlp.down_proj.weight", text)
        self.assertIn("bits each", run("inspect", self.quantize()).stdout)

    def test_verify(self):
        path = self.quantize()
        self.assertIn("Verified", run("inspect", path, "--verify").stdout)
        self.assertIn("Verified", run("inspect", TINY, "--verify").stdout)
        run_json("inspect", "inspect", path, "--verify", "--json")
        raw = bytearray(path.read_bytes())
        raw[-100] ^= 1
        path.write_bytes(raw)
        run("inspect", path)
        error = run("inspect", path, "--verify", status=1).error
        self.assertIn("layers.3.down", error)

    def test_verify_finds_nan_in_a_checkpoint(self):
        def nan(tensors):
            tensors["model.layers.0.mlp.up_proj.weight"][1, 2] = np.inf

        model = self.dir / "model"
        support.write_llama(model, 32, 64, 1, np.random.default_rng(1), nan)
        run("inspect", model)
        self.assertIn("up_proj", run("inspect", model, "--verify", status=1).error)

    def test_what_is_neither(self):
        garbage = self.dir / "garbage.safetensors"
        garbage.write_bytes(b"not a safetensors file at all")
        for path in (garbage, self.dir, "/no/such/file"):
            self.assertIn(str(path), run("inspect", path, status=1).error)

    def test_a_damaged_packed_file_is_not_taken_for_a_checkpoint(self):
        path = self.quantize()
        raw = path.read_bytes()
        path.write_bytes(raw.replace(b"R16K4", b"R16K5", 1))
        error = run("inspect", path, status=1).error
        self.assertNotIn("config.json", error)

    def test_a_damaged_packed_file_is_not_called_something_else(self):
        whole = self.quantize().read_bytes()
        for name in ("short", "short.safetensors"):
            path = self.dir / name
            path.write_bytes(whole[:-64])
            self.assertIn("data_offsets end at", run("inspect", path, status=1).error)
        path.write_bytes(b"\x08" + b"\0" * 7 + b"no json ")
        self.assertIn("config.json", run("inspect", path, status=1).error)

    def test_a_name_cannot_command_the_terminal(self):
        model = self.dir / "bad\x1b[31m\nname"
        support.write_llama(model, 32, 32, 1, np.random.default_rng(1))
        result = run("inspect", model)
        self.assertNotIn("\x1b", result.stdout)
        self.assertIn("\\x1b", result.stdout)
        document = run_json("inspect", "inspect", model, "--json")
        self.assertEqual(document["model"], str(model))


class Cpu(unittest.TestCase):
    def test_json(self):
        got = run_json("cpu", "cpu", "--json")
        available = [t["name"] for t in got["targets"] if t["available"]]
        self.assertTrue(available)
        for name, choice in got["kernels"].items():
            self.assertIn(choice["decode"], available, name)
            self.assertIn(choice["batch"], available, name)

    def test_text_names_the_same_targets(self):
        text = run("cpu").stdout
        for target in run_json("cpu", "cpu", "--json")["targets"]:
            self.assertIn(target["name"], text)
            self.assertIn(target["reason"], text)
        for word in ("SLUICE_DISABLE", "--target", "by default", *support.FORMATS):
            self.assertIn(word, text)

    def test_a_hidden_feature_is_not_used(self):
        features = run_json("cpu", "cpu", "--json")["features"]
        name = next((f for f in ("avx2", "dotprod") if f in features), None)
        if name is None:
            self.skipTest(f"none of the features to hide is here: {features}")
        hidden = {"SLUICE_DISABLE": name}
        got = run_json("cpu", "cpu", "--json", environment=hidden)
        self.assertNotIn(name, got["features"])
        reasons = [t["reason"] for t in got["targets"] if not t["available"]]
        self.assertTrue(any("SLUICE_DISABLE" in reason for reason in reasons), reasons)
        self.assertIn(f"{name}", run("cpu", environment=hidden).stdout)

    def test_a_feature_that_does_not_exist_is_warned_of(self):
        result = run("cpu", environment={"SLUICE_DISABLE": "avx1024"})
        self.assertIn('"avx1024"', " ".join(result.warnings))


class Schemas(unittest.TestCase):
    """A schema that accepts anything would make the other tests' validation empty."""

    def objects(self, schema):
        if isinstance(schema, dict):
            if schema.get("type") == "object":
                yield schema
            for value in schema.values():
                yield from self.objects(value)
        elif isinstance(schema, list):
            for value in schema:
                yield from self.objects(value)

    def test_every_object_is_closed(self):
        for path in support.SCHEMAS.glob("*.schema.json"):
            schema = json.loads(path.read_text(encoding="utf-8"))
            support.jsonschema.Draft202012Validator.check_schema(schema)
            objects = list(self.objects(schema))
            self.assertTrue(objects)
            for item in objects:
                self.assertIs(item["additionalProperties"], False, path)
                if "patternProperties" in item:  # a map, whose keys have a pattern
                    continue
                self.assertTrue(set(item["required"]) <= set(item["properties"]), path)
        self.assertEqual(
            sorted(p.name.split(".")[0] for p in support.SCHEMAS.iterdir()),
            ["bench", "cpu", "eval", "inspect", "report"],
        )

    def test_a_wrong_document_is_rejected(self):
        good = run_json("inspect", "inspect", TINY, "--json")

        def changed(change):
            document = json.loads(json.dumps(good))
            change(document)
            with self.assertRaises(support.jsonschema.ValidationError):
                support.validate(document, "inspect")

        changed(lambda d: d.pop("totals"))
        changed(lambda d: d.update(extra=1))
        changed(lambda d: d.update(schema="sluice.inspect/2"))
        changed(lambda d: d["layers"][0]["matrices"].pop("gate"))
        changed(lambda d: d["layers"][0].update(gated=False))
        changed(lambda d: d["layers"][0]["matrices"]["up"].update(shape=[1, 2, 3]))
        changed(lambda d: d["totals"].update(ffn_bytes=1.5))


if __name__ == "__main__":
    support.main()
