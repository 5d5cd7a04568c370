#!/usr/bin/env python3
"""`sluice report` names planted faults by itself: a faulty copy of the bundled model is quantized and
reported against the model as it is. And it raises no alarm where there is no fault."""

import unittest

import numpy as np
import support
from safetensors.numpy import load_file, save_file
from support import CALIBRATION, TINY, read_json, run

NAME = "model.layers.{}.mlp.{}_proj.weight"
FORMATS = ["qb4w:32", "qb8w:32", "qc8w", "qc4w"]


class Findings(support.CommandTest):
    def setUp(self):
        super().setUp()
        self.rng = support.seeded_generator()
        packed = self.quantize("--weights", "bf16", name="trained.safetensors")
        self.trained = support.decode_packed(packed)

    def report(self, packed, *options, model=TINY, calibration=CALIBRATION):
        out = self.dir / "report.json"
        run("report", model, packed, "--json", out, "--calibration", calibration, "--quiet", *options)
        return read_json("report", out)

    def faulty(self, change):
        """A copy of the bundled model that `change` was called with the tensors of."""
        tensors = {name: values.astype(np.float32) for name, values in self.trained.items()}
        change(tensors)
        model = self.dir / "faulty"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_bytes((TINY / "config.json").read_bytes())
        save_file(tensors, model / "model.safetensors")
        return model

    def alarms(self, report):
        """What is not just information."""
        return [f for f in report["findings"] if f["severity"] != "info"]

    def alarm(self, report):
        """The only one, which is among the warnings too."""
        alarms = self.alarms(report)
        self.assertEqual(len(alarms), 1, alarms)
        self.assertIn(f"layer {alarms[0]['layer']}: {alarms[0]['message']}", report["warnings"])
        return alarms[0]

    def check(self, finding, **expected):
        self.assertEqual({key: finding[key] for key in expected}, expected, finding)

    def place(self):
        """A layer, and a weight of its down that is neither tiny nor the largest."""
        layer = int(self.rng.integers(4))
        down = np.abs(self.trained[NAME.format(layer, "down")])
        while True:
            row, column = (int(self.rng.integers(n)) for n in down.shape)
            if 0.8 < down[row, column] / np.sqrt(np.mean(down**2)) < 2:
                return layer, row, column

    def test_no_alarm_without_a_fault(self):
        for weights in [*FORMATS, "qb4w:128", "bf16", "f32"]:
            report = self.report(self.quantize("--weights", weights))
            self.assertEqual(self.alarms(report), [], weights)
            self.assertEqual(report["warnings"], [], weights)
        for method in ("mse", "gptq"):
            packed = self.quantize("--method", method, "--calibration", CALIBRATION)
            self.assertEqual(self.alarms(self.report(packed)), [], method)

    def test_one_weight_a_hundred_times_as_large(self):
        for weights in FORMATS:
            layer, row, column = self.place()

            def scale(tensors):
                tensors[NAME.format(layer, "down")][row, column] *= 100

            model = self.faulty(scale)
            packed = self.quantize("--weights", weights, model=model)
            finding = self.alarm(self.report(packed))
            block = column // 32 if weights.startswith("qb") else None
            self.check(finding, kind="outlier_weight", severity="error", layer=layer, matrix="down")
            self.check(finding, row=row, column=column, block=block, token=None)
            # The faulty model beside itself: nothing differs, but no model has such a weight.
            finding = self.alarm(self.report(packed, model=model))
            self.check(finding, kind="outlier_weight", severity="warning", layer=layer)
            self.check(finding, matrix="down", row=row, column=column)

    def test_the_neuron_of_the_weight_is_the_worst(self):
        layer, row, column = self.place()

        def scale(tensors):
            tensors[NAME.format(layer, "down")][row, column] *= 100

        report = self.report(self.quantize("--weights", "qb8w:32", model=self.faulty(scale)))
        worst = report["layers"][layer]["worst_neurons"][0]
        self.assertEqual(worst["neuron"], column)
        self.assertGreater(worst["value"], 0.5)

    def test_gate_and_up_swapped(self):
        for weights in FORMATS:
            layer = int(self.rng.integers(4))

            def swap(tensors):
                gate, up = (NAME.format(layer, name) for name in ("gate", "up"))
                tensors[gate], tensors[up] = tensors[up], tensors[gate]

            packed = self.quantize("--weights", weights, model=self.faulty(swap))
            report = self.report(packed)
            self.check(self.alarm(report), kind="swapped_gate_up", severity="error", layer=layer)
            self.assertIn("GATE AND UP LOOK SWAPPED", report["warnings"][0])
        text = run("report", TINY, packed, "--calibration", CALIBRATION).stdout
        self.assertIn("GATE AND UP LOOK SWAPPED", " ".join(text.split()))
        # Random inputs show it as well.
        report = self.report(packed, calibration=self.random_inputs())
        self.check(self.alarm(report), kind="swapped_gate_up", layer=layer)

    def random_inputs(self):
        return self.save(
            "random.safetensors",
            **{
                f"model.layers.{i}.mlp.input": self.rng.standard_normal((64, 128)).astype(np.float32)
                for i in range(4)
            },
        )

    def test_a_block_of_zeros(self):
        for weights in FORMATS:
            layer, matrix = int(self.rng.integers(4)), str(self.rng.choice(["gate", "up", "down"]))
            rows, columns = self.trained[NAME.format(layer, matrix)].shape
            row, block = int(self.rng.integers(rows)), int(self.rng.integers(columns // 32))

            def clear(tensors):
                tensors[NAME.format(layer, matrix)][row, 32 * block : 32 * block + 32] = 0

            finding = self.alarm(
                self.report(self.quantize("--weights", weights, model=self.faulty(clear)))
            )
            self.check(finding, kind="zero_block", severity="error", layer=layer, matrix=matrix)
            self.check(finding, row=row, column=32 * block, block=block)

    def test_one_channel_of_one_token_a_thousand_times_as_large(self):
        inputs = load_file(CALIBRATION)
        layer = int(self.rng.integers(4))
        x = inputs[f"model.layers.{layer}.mlp.input"]
        channel = int(self.rng.integers(x.shape[1]))
        # A value that is usual for its channel; one that happens to be near 0 is no spike even then.
        usual = np.flatnonzero(np.abs(x[:, channel]) >= np.median(np.abs(x[:, channel])))
        token = int(self.rng.choice(usual))
        x[token, channel] *= 1000
        spiked = self.save("spiked.safetensors", **inputs)
        report = self.report(self.quantize(), calibration=spiked)
        finding = self.alarm(report)
        self.check(finding, kind="activation_spike", severity="warning", layer=layer, token=token)
        self.check(finding, column=channel, matrix=None, row=None)
        self.assertEqual(report["layers"][layer]["peaks"][0]["channel"], channel)

    def test_another_models_weights(self):
        other = self.dir / "other"
        support.write_llama(other, 128, 352, 4, self.rng)
        report = self.report(self.quantize(model=other))
        kinds = {(f["kind"], f["matrix"]) for f in self.alarms(report)}
        self.assertEqual(kinds, {("unrelated_weights", m) for m in ("gate", "up", "down")})
        self.assertEqual(len(self.alarms(report)), 12)

    def test_a_matrix_that_is_all_zero(self):
        def clear(tensors):
            tensors[NAME.format(2, "up")][:] = 0

        model = self.faulty(clear)
        finding = self.alarm(self.report(self.quantize(model=model), model=model))
        self.check(finding, kind="zero_matrix", severity="error", layer=2, matrix="up", row=None)

    def test_findings_are_in_the_text(self):
        layer, row, column = self.place()

        def scale(tensors):
            tensors[NAME.format(layer, "down")][row, column] *= 100

        packed = self.quantize(model=self.faulty(scale))
        text = run("report", TINY, packed, "--calibration", CALIBRATION).stdout
        self.assertRegex(
            text, rf"outlier_weight +error +{layer} +down +{row} +{column} +{column // 32} +-"
        )


class Several(support.CommandTest):
    """Several packed files in one report, and the model's loss."""

    def test_a_report_for_each(self):
        files = [self.quantize("--weights", w, name=f"{w}.safetensors") for w in ("qc8w", "qc4w")]
        out = self.dir / "reports.json"
        text = run("report", TINY, *files, "--calibration", CALIBRATION, "--json", out).stdout
        several = read_json("report", out)
        self.assertEqual(several["schema"], "sluice.reports/1")
        self.assertEqual([r["file"] for r in several["reports"]], [str(f) for f in files])
        for file, report in zip(files, several["reports"], strict=True):
            one = self.dir / "one.json"
            run("report", TINY, file, "--calibration", CALIBRATION, "--json", one, "--quiet")
            self.assertEqual(read_json("report", one), report)
        self.assertEqual(text.count("Quantization report for"), 2)

    def test_the_models_loss(self):
        files = [self.quantize("--weights", w, name=f"{w}.safetensors") for w in ("qc8w", "qc4w")]
        text, evaluation = self.dir / "text", self.dir / "eval.json"
        text.write_bytes((TINY / "heldout.txt").read_bytes()[:2048])
        options = ["--text", text, "--context", "256", "--json", evaluation, "--quiet"]
        run("eval", TINY, *files, *options)
        figures = read_json("eval", evaluation)
        out = self.dir / "report.json"
        command = ["report", TINY, files[1], "--calibration", CALIBRATION, "--json", out]
        self.assertIn("was not measured: `sluice eval", " ".join(run(*command).stdout.split()))
        self.assertIsNone(read_json("report", out)["evaluation"])
        told = run(*command, "--eval", evaluation).stdout
        loss = read_json("report", out)["evaluation"]
        self.assertEqual(loss["file"]["kl"], figures["files"][1]["kl"])
        self.assertEqual(loss["file"]["perplexity"], figures["files"][1]["perplexity"])
        self.assertEqual(loss["fp32"], figures["fp32"])
        self.assertEqual(loss["tokens"], figures["tokens"])
        self.assertIn("perplexity goes from", told)
        other = self.quantize(name="other.safetensors")
        error = run("report", TINY, other, "--eval", evaluation, status=1).error
        self.assertIn("has no figures of", error)
        self.assertIn("qc4w.safetensors", error)
        for bad in (b"{}", b'{"schema": "sluice.eval/1"}', b"[", evaluation.read_bytes()[:-40]):
            evaluation.write_bytes(bad)
            self.assertIn("eval.json", run(*command, "--eval", evaluation, status=1).error)


if __name__ == "__main__":
    support.main()
