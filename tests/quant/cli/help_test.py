#!/usr/bin/env python3
"""Help, version, usage errors: what a newcomer meets first."""

import re
import unittest

import support
from support import run

COMMANDS = ["quantize", "report", "eval", "capture", "inspect", "run", "unpack", "bench", "cpu"]

# The synopsis that the command promises: every option of every subcommand.
OPTIONS = {
    "quantize": "--output --weights --gate --up --down --override --layers --activations "
    "--calibration --report --config --threads --strict --force --quiet --method --tokens --text "
    "--context --no-rescale --resume --bits --size --max-error",
    "report": "--calibration --eval --json --html --markdown --config --backend --threads --quiet",
    "eval": "--tokens --text --context --json --config --threads --quiet",
    "capture": "--output --tokens --text --context --sample --seed --config --threads --quiet",
    "inspect": "--json --verify --config --quiet",
    "run": "--layer --input --output --backend --target --threads --quiet",
    "unpack": "--output --integers --quiet",
    "bench": "--shape --layer --weights --activations --batch --threads --backend --target --cache "
    "--rounds --json --quiet",
    "cpu": "--json",
}


class Help(unittest.TestCase):
    def test_version(self):
        project = (support.TREE / "CMakeLists.txt").read_text(encoding="utf-8")
        version = re.search(r"VERSION (\d+\.\d+\.\d+)", project)[1]
        self.assertEqual(run("--version").stdout, f"sluice {version}\n")

    def test_every_command_is_listed(self):
        text = run("--help").stdout
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} +[A-Z].*\.$")

    def test_every_command_explains_itself(self):
        for command in COMMANDS:
            with self.subTest(command):
                text = run(command, "--help").stdout
                self.assertIn(f"Usage: sluice {command}", text)
                self.assertIn("Examples:\n  ", text)
                self.assertEqual(run(command, "-h").stdout, text)
                for line in text.splitlines():
                    self.assertLessEqual(len(line), 100, line)

    def test_every_option_is_explained_and_no_other_exists(self):
        for command, names in OPTIONS.items():
            text = run(command, "--help").stdout
            found = re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)( |$)", text)
            self.assertEqual({name for name, _ in found}, {*names.split(), "--help"}, command)
            for name in names.split():
                entry = re.search(rf"(?ms)^  (?:-\w,)?{name}\b.*?(?=^  -|^\S|^$)", text)[0]
                self.assertRegex(entry, r"[a-z ]{12}", f"{command} {name}: {entry}")

    def test_defaults_are_shown(self):
        self.assertIn("--weights FMT [qb4w:32]", run("quantize", "--help").stdout)
        bench = run("bench", "--help").stdout
        for shown in ("[1,4,16,128]", "[cold]", "[11]", "[highway]", "--threads N[,N...] ["):
            self.assertIn(shown, bench)


class Usage(unittest.TestCase):
    def usage_error(self, *arguments):
        result = run(*arguments, status=2)
        self.assertEqual(result.stdout, "")
        return result.error

    def test_no_command(self):
        result = run(status=2)
        self.assertIn("Usage: sluice COMMAND", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_unknown_command_or_option(self):
        error = self.usage_error("frobnicate")
        for name in ['"frobnicate"', *COMMANDS]:
            self.assertIn(name, error)
        self.assertIn('"--frobnicate"', self.usage_error("--frobnicate", "cpu"))
        error = self.usage_error("cpu", "--frobnicate")
        self.assertIn("--frobnicate", error)
        self.assertIn("sluice cpu --help", error)

    def test_a_mistyped_option_is_named_first_with_what_was_meant(self):
        for arguments, told in (
            (["quantize", "m", "-o", "f", "--weigths", "qc8w"], '"--weigths"; did you mean --weights?'),
            (["quantize", "m", "-o", "f", "--weigths=qc8w"], '"--weigths"; did you mean --weights?'),
            (["quantize", "--weigths", "qc8w", "m"], '"--weigths"; did you mean --weights?'),
            (["run", "f", "--outptu", "y"], '"--outptu"; did you mean --output?'),
            (["bench", "-shape", "8,8"], '"-shape"; did you mean --shape?'),
            (["--versoin"], '"--versoin"; did you mean --version?'),
            (["cpu", "--frobnicate"], '"--frobnicate" (see sluice cpu --help)'),
            (["cpu", "-z"], '"-z" (see sluice cpu --help)'),
        ):
            error = self.usage_error(*arguments)
            self.assertTrue(error.startswith(f"unknown option {told}"), error)

    def test_help_is_a_command_too(self):
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "run").stdout, run("run", "--help").stdout)
        self.usage_error("help", "frobnicate")

    def test_missing_arguments_are_named(self):
        for arguments, missing in (
            (["quantize"], "MODEL"),
            (["quantize", "model"], "--output"),
            (["report", "model"], "FILE"),
            (["inspect"], "MODEL|FILE"),
            (["run", "file", "--input", "x", "--output", "y"], "--layer"),
            (["run", "file", "--layer", "0", "--output", "y"], "--input"),
            (["run", "file", "--layer", "0", "--input", "x"], "--output"),
            (["unpack", "file"], "--output"),
            (["quantize", "model", "-o"], "--output"),
        ):
            self.assertIn(missing, self.usage_error(*arguments))

    def test_unknown_names_list_the_known_ones(self):
        for option in ("--weights", "--gate", "--up", "--down"):
            error = self.usage_error("quantize", "m", "-o", "f", option, "q4_0")
            self.assertIn(option, error)
            self.assertIn('"q4_0"', error)
            for name in support.FORMATS:
                self.assertIn(name, error)
        error = self.usage_error("quantize", "m", "-o", "f", "--activations", "f32")
        self.assertIn("row, block", error)
        where = ["run", "f", "--layer", "0", "--input", "x", "--output", "y"]
        error = self.usage_error(*where, "--backend", "cuda")
        self.assertIn("highway, xnnpack, reference", error)
        self.assertIn("known: ", self.usage_error(*where, "--target", "AVX1024"))
        self.assertIn("cold, warm", self.usage_error("bench", "--shape", "8,8", "--cache", "hot"))

    def test_malformed_values(self):
        quantize = ["quantize", "m", "-o", "f"]
        for arguments in (
            [*quantize, "--threads", "0"],
            [*quantize, "--threads", "-1"],
            [*quantize, "--threads", "two"],
            [*quantize, "--threads", "99999999999999999999"],
            [*quantize, "--layers", "3-1"],
            [*quantize, "--layers", "x"],
            [*quantize, "--override", "0:down"],
            [*quantize, "--override", "0:middle=qc8w"],
            [*quantize, "--override", "0:down=q4"],
            [*quantize, "--report", "report.pdf"],
            ["run", "f", "--layer", "-1", "--input", "x", "--output", "y"],
            ["bench", "--shape", "576"],
            ["bench", "--shape", "0,8"],
            ["bench", "--shape", "8,8", "--batch", "1,x"],
            ["bench", "--shape", "8,8", "--rounds", "0"],
        ):
            with self.subTest(arguments=arguments):
                self.usage_error(*arguments)

    def test_bench_wants_one_subject(self):
        self.usage_error("bench")
        self.usage_error("bench", "file", "--shape", "8,8")
        self.usage_error("bench", "file", "--weights", "qc8w")
        self.usage_error("bench", "--shape", "8,8", "--layer", "0")
        self.usage_error("bench", "--shape", "8,8", "--backend", "xnnpack", "--target", "AVX2")

    def test_a_name_cannot_command_the_terminal(self):
        error = self.usage_error("cpu", "\x1b]0;owned\x07\n--x")
        self.assertNotIn("\x1b", error)
        self.assertIn("\\x1b", error)


if __name__ == "__main__":
    support.main()
