#!/usr/bin/env python3
"""`sluice quantize`: formats, overrides, warnings, and that the file appears whole or not at all."""

import json
import os
import re
import resource
import signal
import stat
import subprocess
import time
import unittest

import numpy as np
import support
from safetensors import safe_open
from safetensors.numpy import load_file
from support import CALIBRATION, TINY, run, run_json

GATE = "model.layers.{}.mlp.gate_proj.weight"
DOWN = "model.layers.{}.mlp.down_proj.weight"


def formats_of(path):
    """(layer, matrix) -> the format in a packed file."""
    return {
        (layer["layer"], matrix): info["type"]
        for layer in run_json("inspect", "inspect", path, "--json")["layers"]
        for matrix, info in layer["matrices"].items()
    }


def description_of(path):
    with safe_open(path, framework="np") as opened:
        return json.loads(opened.metadata()["sluice"])


class Formats(support.CommandTest):
    def test_the_default_is_qb4w_32(self):
        self.assertEqual(set(formats_of(self.quantize()).values()), {"qb4w:32"})

    def test_every_format(self):
        for name in support.FORMATS:
            self.assertEqual(set(formats_of(self.quantize("--weights", name)).values()), {name})

    def test_a_format_for_each_matrix(self):
        path = self.quantize("--weights", "f32", "--gate", "qb4w:32", "--up", "qb4w:64")
        expected = {"gate": "qb4w:32", "up": "qb4w:64", "down": "f32"}
        for (_, matrix), name in formats_of(path).items():
            self.assertEqual(name, expected[matrix])

    def test_of_several_overrides_the_last_wins(self):
        path = self.quantize(
            *["--down", "qc8w", "--override", "*:down=qc4w", "--override", "1-2:down=f32"],
            *["--override", "0,2:down=bf16"],
        )
        got = formats_of(path)
        self.assertEqual([got[i, "down"] for i in range(4)], ["bf16", "f32", "bf16", "qc4w"])
        self.assertEqual(got[0, "gate"], "qb4w:32")

    def test_an_override_that_matches_nothing(self):
        for override in ("7:down=qc8w", "0,9:up=qc8w"):
            path = self.dir / "packed.safetensors"
            result = run("quantize", TINY, "-o", path, "--override", override, status=1)
            self.assertIn(override, result.error)
            self.assertIn(str(TINY), result.error)
            self.assertEqual(self.files(), [])

    def test_an_override_outside_of_layers_matches_nothing(self):
        path = self.dir / "packed.safetensors"
        options = ["--layers", "1-2", "--override", "0:down=qc8w"]
        run("quantize", TINY, "-o", path, *options, status=1)

    def test_layers_keep_their_numbers(self):
        path = self.quantize("--layers", "1-2")
        self.assertEqual([layer for layer, matrix in formats_of(path) if matrix == "up"], [1, 2])
        run("quantize", TINY, "-o", self.dir / "x", "--layers", "2-4", status=1)

    def test_a_gate_where_there_is_none(self):
        model = self.dir / "bert"
        support.write_bert(model, 32, 64, 2, np.random.default_rng(1))
        path = self.dir / "packed.safetensors"
        error = run("quantize", model, "-o", path, "--gate", "qc8w", status=1).error
        self.assertIn("gate", error)
        self.assertFalse(path.exists())
        got = formats_of(self.quantize("--up", "qb4w:64", "--down", "qc8w", model=model))
        self.assertEqual(got[1, "up"], "qb4w:64")
        self.assertNotIn((0, "gate"), got)

    def test_activations(self):
        def of(*options):
            layer = run_json("inspect", "inspect", self.quantize(*options), "--json")["layers"][0]
            return layer["activations"]["input"], layer["activations"]["hidden"]

        self.assertEqual(of("--weights", "qc8w"), ("row", "row"))
        self.assertEqual(of("--weights", "qb4w:32"), ("block", "block"))
        self.assertEqual(of("--up", "qc8w", "--down", "qc8w"), ("block", "row"))
        self.assertEqual(of("--activations", "row"), ("row", "row"))
        self.assertEqual(of("--weights", "qc8w", "--activations", "block"), ("block", "block"))
        self.assertEqual(of("--weights", "f32", "--down", "qc4w"), ("f32", "row"))

    def test_activations_that_nothing_takes_are_warned_of(self):
        result = run(
            *["quantize", TINY, "-o", self.dir / "x", "--weights", "bf16", "--activations", "row"]
        )
        self.assertIn("no effect", " ".join(result.warnings))


class Table(support.CommandTest):
    def test_requested_and_stored_formats_sizes_and_errors(self):
        path = self.dir / "packed.safetensors"
        text = run("quantize", TINY, "-o", path, "--override", "2:down=qc8w").stdout
        rows = re.findall(r"(?m)^  (gate|up|down) +(\S.*?)  +(\S+) +(\S+) +rtn +([\d.]+) .*%", text)
        self.assertEqual(
            [row[:4] for row in rows],
            [
                ("gate", "0-3", "qb4w:32", "qb4w:32"),
                ("up", "0-3", "qb4w:32", "qb4w:32"),
                ("down", "0-1, 3", "qb4w:32", "qb4w:32"),
                ("down", "2", "qc8w", "qc8w"),
            ],
        )
        self.assertEqual(rows[0][4], "4.500")

    def test_calibration_alone_prints_the_blocks_errors(self):
        path = self.dir / "packed.safetensors"
        text = run("quantize", TINY, "-o", path, "--calibration", CALIBRATION).stdout
        self.assertIn("a block's output is", text)
        self.assertNotIn("RANDOM", text)

    def test_quiet(self):
        result = run("quantize", TINY, "-o", self.dir / "x", "--quiet")
        self.assertEqual(result.stdout + result.stderr, "")

    def test_progress_is_plain_lines_without_a_terminal(self):
        result = run("quantize", TINY, "-o", self.dir / "x")
        self.assertIn("quantizing: 4 of 4, layer 3\n", result.stderr)
        self.assertNotIn("\x1b", result.stderr)
        self.assertNotIn("\r", result.stderr)


class Determinism(support.CommandTest):
    def test_threads_do_not_change_the_file(self):
        one = self.quantize("--threads", "1", name="one").read_bytes()
        self.assertEqual(self.quantize("--threads", "3", name="three").read_bytes(), one)


class Warnings(support.CommandTest):
    def zero_down(self, tensors):
        tensors[DOWN.format(1)][:] = 0

    def test_a_matrix_of_zeros(self):
        model = self.dir / "model"
        support.write_llama(model, 32, 64, 2, np.random.default_rng(1), self.zero_down)
        path = self.dir / "packed.safetensors"
        result = run("quantize", model, "-o", path)
        self.assertIn("layer 1: down: all weights are zero", " ".join(result.warnings))
        path.unlink()
        error = run("quantize", model, "-o", path, "--strict", status=1).error
        self.assertIn("all weights are zero", error)
        self.assertIn("--strict", error)
        self.assertEqual(self.files(), ["model"])
        self.quantize("--strict", "--layers", "0-0", model=model)

    def test_a_layer_without_calibration(self):
        inputs = load_file(CALIBRATION)
        inputs.pop("model.layers.2.mlp.input")
        partial = self.save("partial.safetensors", **inputs)
        path = self.dir / "packed.safetensors"
        result = run("quantize", TINY, "-o", path, "--calibration", partial)
        self.assertEqual(len(result.warnings), 1, result.warnings)
        self.assertIn("layer 2", result.warnings[0])
        path.unlink()
        options = ["--calibration", partial, "--strict", "--report", self.dir / "r.html"]
        self.assertIn("layer 2", run("quantize", TINY, "-o", path, *options, status=1).error)
        self.assertEqual(self.files(), ["partial.safetensors"])

    def test_a_report_without_calibration_is_no_strict_one(self):
        path = self.dir / "packed.safetensors"
        options = ["--report", self.dir / "r.json"]
        result = run("quantize", TINY, "-o", path, *options)
        self.assertIn("RANDOM INPUTS", result.stdout)
        path.unlink()
        (self.dir / "r.json").unlink()
        run("quantize", TINY, "-o", path, *options, "--strict", status=1)
        self.assertEqual(self.files(), [])
        run("quantize", TINY, "-o", path, "--strict")
        run("quantize", TINY, "-o", path, "--strict", "--force", "--calibration", CALIBRATION)

    def test_weights_too_small_for_a_scale_are_counted(self):
        def tiny(tensors):
            tensors[GATE.format(0)][3, :32] = 1e-39

        model = self.dir / "model"
        support.write_llama(model, 64, 64, 1, np.random.default_rng(1), tiny)
        path = self.dir / "packed.safetensors"
        result = run("quantize", model, "-o", path)
        self.assertRegex(result.stdout, r"(?m)^  gate .* 1$")
        self.assertEqual(len(result.warnings), 1, result.warnings)
        self.assertIn("layer 0: gate: 1 block", result.warnings[0])
        self.assertIn("row 3", result.warnings[0])
        self.assertTrue(np.isfinite(support.decode_packed(path)[GATE.format(0)]).all())
        run("quantize", model, "-o", path, "--strict", "--force", status=1)


class Inputs(support.CommandTest):
    def fails(self, model, *options):
        result = run("quantize", model, "-o", self.dir / "packed.safetensors", *options, status=1)
        self.assertNotIn("packed.safetensors", " ".join(self.files()))
        return result.error

    def test_a_model_that_is_not_there(self):
        self.assertIn("/no/such/model", self.fails("/no/such/model"))

    def test_weights_without_a_configuration(self):
        alone = self.dir / "alone.safetensors"
        alone.write_bytes((TINY / "model.safetensors").read_bytes())
        self.assertIn("config.json", self.fails(alone))
        self.quantize("--config", TINY / "config.json", model=alone)

    def test_weights_that_are_no_numbers(self):
        def nan(tensors):
            tensors[DOWN.format(1)][3, 7] = np.nan

        model = self.dir / "model"
        support.write_llama(model, 32, 64, 2, np.random.default_rng(1), nan)
        error = self.fails(model)
        self.assertIn(DOWN.format(1), error)
        self.assertIn("nan", error.lower())

    def test_an_unknown_activation(self):
        model = self.dir / "model"
        support.write_llama(model, 32, 64, 1, np.random.default_rng(1))
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "hidden_act": "mish"}))
        error = self.fails(model)
        self.assertIn("hidden_act", error)
        self.assertIn("mish", error)

    def test_calibration_of_the_wrong_width_stops_before_any_work(self):
        wrong = self.save(
            "wrong.safetensors", **{"model.layers.0.mlp.input": np.ones((2, 127), np.float32)}
        )
        error = self.fails(TINY, "--calibration", wrong)
        self.assertIn("[2, 127]", error)
        self.assertIn("128", error)

    def test_calibration_that_is_none(self):
        self.assertIn("packed", self.fails(TINY, "--calibration", self.quantize(name="packed")))


class Outputs(support.CommandTest):
    def test_an_existing_file_is_kept(self):
        path = self.dir / "packed.safetensors"
        path.write_text("precious")
        error = run("quantize", TINY, "-o", path, status=1).error
        self.assertIn(str(path), error)
        self.assertIn("--force", error)
        self.assertEqual(path.read_text(), "precious")
        run("quantize", TINY, "-o", path, "--force")
        self.assertEqual(set(formats_of(path).values()), {"qb4w:32"})
        self.assertEqual(self.files(), ["packed.safetensors"])

    def test_an_existing_file_survives_a_failure(self):
        path = self.dir / "packed.safetensors"
        path.write_text("precious")
        options = ["--force", "--calibration", "/no/such/file"]
        run("quantize", TINY, "-o", path, *options, status=1)
        self.assertEqual(path.read_text(), "precious")
        self.assertEqual(self.files(), ["packed.safetensors"])

    def test_an_input_is_never_overwritten(self):
        model = self.dir / "model"
        support.write_llama(model, 32, 64, 1, np.random.default_rng(1))
        weights = (model / "model.safetensors").read_bytes()
        (self.dir / "link").symlink_to(model / "model.safetensors")
        for path in (
            model / "model.safetensors",
            self.dir / "model/../model/model.safetensors",
            self.dir / "link",
            model / "config.json",
        ):
            run("quantize", model, "-o", path, "--force", status=1)
        run("quantize", model, "-o", self.dir / "x", "--report", model / "config.json", status=1)
        self.assertEqual((model / "model.safetensors").read_bytes(), weights)
        self.assertEqual(self.files(), ["link", "model"])

    def test_outputs_are_different_files(self):
        report = self.dir / "r.json"
        run("quantize", TINY, "-o", report, "--report", report, status=1)
        run("quantize", TINY, "-o", self.dir / "x", "--report", report, "--report", report, status=1)
        # One file in two spellings, of which only one begins with something that is there.
        run("quantize", TINY, "-o", "r.json", "--report", "./r.json", status=1, cwd=self.dir)
        self.assertEqual(self.files(), [])

    def test_names_that_are_none(self):
        self.assertIn("empty", run("quantize", TINY, "-o", "", status=1, cwd=self.dir).error)
        error = run("quantize", TINY, "-o", "-", status=1, cwd=self.dir).error
        self.assertIn("standard output", error)
        self.assertEqual(self.files(), [])
        run("quantize", TINY, "-o", "./-", cwd=self.dir)
        self.assertEqual(self.files(), ["-"])

    def test_places_that_cannot_be_written(self):
        for place, reason in (
            ("/no/such/folder/x", "No such file or directory"),
            ("/proc/x", ""),
            ("/dev/null", "not a regular file"),
            (self.dir, "a directory"),
        ):
            error = run("quantize", TINY, "-o", place, status=1).error
            self.assertIn(str(place), error)
            self.assertIn(reason, error)
        report = "/no/such/folder/r.json"
        error = run("quantize", TINY, "-o", self.dir / "x", "--report", report, status=1).error
        self.assertIn(report, error)
        self.assertEqual(self.files(), [])
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    @unittest.skipIf(os.geteuid() == 0, "root writes anywhere; /proc above stands for it")
    def test_a_read_only_folder(self):
        self.dir.chmod(0o555)
        self.addCleanup(self.dir.chmod, 0o755)
        self.assertIn(
            "Permission denied", run("quantize", TINY, "-o", self.dir / "x", status=1).error
        )

    def test_a_file_that_grows_too_large(self):
        """As on a full disk: the write fails, the error says so, and nothing stays."""

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        path = self.dir / "packed.safetensors"
        result = run("quantize", TINY, "-o", path, status=1, preexec_fn=limit, restore_signals=False)
        self.assertIn(str(path), result.error)
        self.assertNotRegex(result.error, rf"{path}\.\w")  # the temporary file's name
        self.assertIn("File too large", result.error)
        self.assertEqual(self.files(), [])

    def test_results_that_cannot_be_printed_are_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            command = [*support.SLUICE, "inspect", str(TINY)]
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("No space left on device", result.stderr)

    def test_the_file_says_what_it_is(self):
        description = description_of(self.quantize())
        self.assertEqual(description["architecture"], "llama")
        self.assertEqual(description["layers"][3]["matrices"]["gate"]["name"], GATE.format(3))
        self.assertEqual(description["layers"][0]["activation"], "silu")


@unittest.skipIf(support.EMULATED, "signals meet the emulator")
class Interrupts(support.CommandTest):
    def test_nothing_half_written_stays(self):
        model = self.dir / "model"
        support.write_llama(model, 768, 1536, 6, np.random.default_rng(1))
        out = self.dir / "out"
        out.mkdir()
        for number in (
            *[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT],
            *[signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2],
        ):
            with self.subTest(signal=number):
                status, _ = self.interrupt(model, out, lambda p, n=number: p.send_signal(n))
                self.assertEqual(status, -number)
                self.assertEqual(list(out.iterdir()), [])

    def test_a_model_that_becomes_shorter(self):
        """Its pages are gone from the mapping, which is a signal too, but a failure to explain."""
        model = self.dir / "model"
        support.write_llama(model, 768, 1536, 6, np.random.default_rng(1))
        out = self.dir / "out"
        out.mkdir()
        weights = model / "model.safetensors"
        status, error = self.interrupt(model, out, lambda _: os.truncate(weights, 4096))
        self.assertEqual(status, 1)
        self.assertRegex(error, "(?m)^sluice: a file can no longer be read: .*shorter")
        self.assertEqual(list(out.iterdir()), [])

    def test_a_file_that_came_meanwhile_is_kept(self):
        model = self.dir / "model"
        support.write_llama(model, 768, 1536, 6, np.random.default_rng(1))
        out = self.dir / "out"
        out.mkdir()
        path = out / "packed.safetensors"
        status, error = self.interrupt(model, out, lambda _: path.write_text("precious"))
        self.assertEqual(status, 1)
        self.assertIn("--force", error)
        self.assertEqual(path.read_text(), "precious")
        self.assertEqual(list(out.iterdir()), [path])

    def interrupt(self, model, out, disturb):
        """Disturbs the process when the file is begun and not yet complete. Its status and stderr."""
        command = [*support.SLUICE, "quantize", str(model), "-o", str(out / "packed.safetensors")]
        report = ["--report", str(out / "report.html")]

        def without_core():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        with subprocess.Popen(
            [*command, *report], stderr=subprocess.PIPE, text=True, preexec_fn=without_core
        ) as process:
            while process.poll() is None:
                if any(path.stat().st_size > 0 for path in out.glob("packed.safetensors.*")):
                    break
                time.sleep(0.001)
            disturb(process)
            _, error = process.communicate(timeout=60)
            return process.returncode, error


if __name__ == "__main__":
    support.main()
