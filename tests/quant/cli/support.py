"""What the tests of the command share: running it, models for it, and an independent reading of its
files."""

import json
import os
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import numpy as np
from safetensors.numpy import load_file, save_file

TREE = pathlib.Path(__file__).resolve().parents[3]
TINY = TREE / "tests/data/tiny-llama"
CALIBRATION = TINY / "calibration.safetensors"
SCHEMAS = TREE / "quant/report/schema"

# The command, after its emulator if it needs one.
SLUICE = shlex.split(os.environ.get("SLUICE", str(TREE / "build/release/bin/sluice")))
EMULATED = len(SLUICE) > 1
# Sanitizers multiply memory and time.
SANITIZED = bool(os.environ.get("SLUICE_SANITIZED"))

FORMATS = ["f32", "bf16", "qb8w:32", "qc8w", "qb4w:32", "qb4w:64", "qb4w:128", "qc4w"]
FLOATS = ["f32", "bf16"]
XNNPACK_FORMATS = ["f32", "qc8w", "qb4w:32", "qb4w:64", "qb4w:128", "qc4w"]


def seeded_generator(default=None):
    """A generator whose seed is printed, and taken from SLUICE_TEST_SEED if that is set; else it is
    `default`, or another one each time."""
    if default is None:
        default = random.SystemRandom().randrange(2**32)
    seed = int(os.environ.get("SLUICE_TEST_SEED", default))
    print(f"SLUICE_TEST_SEED={seed}", flush=True)
    return np.random.default_rng(seed)


def run(*arguments, status=0, **keywords):
    """Runs the command; its exit status must be `status`. What fails says so in one line."""
    environment = {**os.environ, **keywords.pop("environment", {})}
    command = [*SLUICE, *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment, **keywords
    )
    told = f"{shlex.join(command)}\nstatus {result.returncode}\n{result.stdout}{result.stderr}"
    if result.returncode != status:
        raise AssertionError(f"expected status {status}: {told}")
    errors = [line for line in result.stderr.splitlines() if is_error(line)]
    if len(errors) != (status != 0):
        raise AssertionError(f"expected {int(status != 0)} lines with an error: {told}")
    result.error = errors[0].removeprefix("sluice: ") if errors else ""
    result.warnings = re.findall(r"^sluice: warning: (.*)$", result.stderr, re.M)
    return result


def is_error(line):
    return line.startswith("sluice: ") and not line.startswith(
        ("sluice: warning: ", "sluice: left out: ")
    )


def validate(document, name):
    """Checks a parsed JSON document against quant/report/schema/NAME.schema.json."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


def run_json(name, *arguments, **keywords):
    """The JSON that the command prints, validated."""
    return validate(json.loads(run(*arguments, **keywords).stdout), name)


def read_json(name, path):
    return validate(json.loads(pathlib.Path(path).read_text(encoding="utf-8")), name)


def write_llama(folder, d, m, layers, rng, change=None):
    """A checkpoint of random weights N(0, 1/K), as Hugging Face stores it. `change` is called with the
    tensors before they are written."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for i in range(layers):
        for name, rows, cols in (("gate", m, d), ("up", m, d), ("down", d, m)):
            weights = rng.standard_normal((rows, cols)) / np.sqrt(cols)
            tensors[f"model.layers.{i}.mlp.{name}_proj.weight"] = weights.astype(np.float32)
    if change:
        change(tensors)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": d,
        "intermediate_size": m,
        "num_hidden_layers": layers,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return tensors


def write_bert(folder, d, m, layers, rng):
    """An ungated checkpoint with biases and exact GELU."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for i in range(layers):
        for name, rows, cols in (("intermediate", m, d), ("output", d, m)):
            prefix = f"encoder.layer.{i}.{name}.dense"
            weights = rng.standard_normal((rows, cols)) / np.sqrt(cols)
            tensors[f"{prefix}.weight"] = weights.astype(np.float32)
            tensors[f"{prefix}.bias"] = (0.1 * rng.standard_normal(rows)).astype(np.float32)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": d,
        "intermediate_size": m,
        "num_hidden_layers": layers,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return tensors


def write_gguf(path, d, m, layers, rng):
    """A Llama in GGUF whose feed-forward matrices are Q8_0: blocks of an f16 scale and 32 integers."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    values = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    numbers = {"embedding_length": d, "feed_forward_length": m, "block_count": layers}
    for key, number in numbers.items():
        values += text(f"llama.{key}") + struct.pack("<II", 4, number)
    block = np.dtype([("scale", "<f2"), ("integers", "i1", 32)])
    infos, data = b"", b""
    for i in range(layers):
        for name, rows, cols in (("gate", m, d), ("up", m, d), ("down", d, m)):
            infos += text(f"blk.{i}.ffn_{name}.weight")
            infos += struct.pack("<IQQIQ", 2, cols, rows, 8, len(data))
            blocks = np.zeros(rows * cols // 32, block)
            blocks["scale"] = 0.5 / 127 / np.sqrt(cols)
            blocks["integers"] = rng.integers(-127, 128, (len(blocks), 32))
            data += blocks.tobytes() + b"\0" * (-blocks.nbytes % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, 3 * layers, 1 + len(numbers)) + values + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def format_functions():
    """The NumPy reader that docs/FILE_FORMAT.md gives, which shares no code with ours."""
    text = (TREE / "docs/FILE_FORMAT.md").read_text(encoding="utf-8")
    functions = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], functions)
    return functions


def decode_packed(path, integers=False):
    """What `sluice unpack` should make of a packed file, read by other means."""
    functions = format_functions()
    description, planes = functions["open_packed"](path)
    tensors = {}
    for layer in description["layers"]:
        factors = functions["rescale"](planes, layer)
        for which, matrix in layer["matrices"].items():
            prefix = f"layers.{layer['layer']}.{which}."
            weights, scales = functions["decode"](planes, prefix, matrix)
            if integers and which == "up" and "rescale" in layer:
                tensors[matrix["name"] + ".rescale"] = factors
            if integers and scales is not None:
                tensors[matrix["name"]] = weights
                tensors[matrix["name"] + ".scale"] = scales
            else:
                tensors[matrix["name"]] = functions["restore"](planes, layer, which)
            if "bias_name" in matrix:
                bias = planes[prefix + "bias"].view("<f4")
                bias = bias[: matrix["shape"][0]]
                undo = which == "up" and not integers
                tensors[matrix["bias_name"]] = bias / factors if undo else bias
    return tensors


def assert_same_tensors(got, expected):
    """Same names, types, shapes and bits."""
    assert sorted(got) == sorted(expected), f"{sorted(got)} against {sorted(expected)}"
    for name, values in expected.items():
        assert got[name].dtype == values.dtype, f"{name}: {got[name].dtype}, {values.dtype}"
        assert got[name].shape == values.shape, f"{name}: {got[name].shape}, {values.shape}"
        same = np.ascontiguousarray(got[name]).view(np.uint8) == np.ascontiguousarray(values).view(
            np.uint8
        )
        assert same.all(), f"{name}: {np.count_nonzero(~same)} bytes differ"


def silu(x):
    return x / (1 + np.exp(-x))


def swiglu(x, gate, up, down):
    """The block in float64; matrices are [out, in]."""
    x, gate, up, down = (np.asarray(a, np.float64) for a in (x, gate, up, down))
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def relative_l2(got, expected):
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


class CommandTest(unittest.TestCase):
    """A test in a directory of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test.")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def files(self):
        """Everything that is in the directory, so that a test can say that nothing else is."""
        return sorted(path.name for path in self.dir.iterdir())

    def quantize(self, *options, model=TINY, name="packed.safetensors", **keywords):
        """Quantizes `model` and returns the packed file."""
        path = self.dir / name
        run("quantize", model, "-o", path, "--quiet", "--force", *options, **keywords)
        return path

    def save(self, name, **tensors):
        path = self.dir / name
        save_file(tensors, path)
        return path

    def load(self, name):
        return load_file(self.dir / name)


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
