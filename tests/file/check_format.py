#!/usr/bin/env python3
"""The packed file as docs/FILE_FORMAT.md tells it, to a reader that shares no code with ours.

    check_format.py WRITE_SAMPLES...

Runs the command WRITE_SAMPLES FOLDER, opens each packed model with Python's safetensors, decodes it
with the NumPy code of the document, and compares with the matrices it was packed from.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import safetensors
import safetensors.numpy

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "FILE_FORMAT.md"


def code_of_document():
    """The document's functions, by name."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 1, f"{DOCUMENT} has {len(blocks)} Python blocks, expected one"
    functions = {}
    exec(compile(blocks[0], str(DOCUMENT), "exec"), functions)
    return functions


def check_container(path, description, tensors):
    """Python's safetensors sees the same file, and every promise about places and sizes holds."""
    with safetensors.safe_open(path, framework="np") as opened:
        assert opened.metadata()["format"] == "sluice"
        assert json.loads(opened.metadata()["sluice"]) == description
        assert set(opened.keys()) == set(tensors)
    raw = path.read_bytes()
    header_bytes = int.from_bytes(raw[:8], "little")
    assert (8 + header_bytes) % 64 == 0
    place = 8 + header_bytes
    stored = dict(safetensors.deserialize(raw))
    order = json.loads(raw[8:place])
    order.pop("__metadata__")
    for name in order:
        plane = bytes(tensors[name])
        assert plane == bytes(stored[name]["data"]), name
        assert len(stored[name]["shape"]) == 1 and len(plane) % 64 == 0, name
        assert raw[place : place + len(plane)] == plane, name
        place += len(plane)
    assert place == len(raw)
    names = [
        f"layers.{layer['layer']}.{part}"
        for layer in description["layers"]
        for part in [
            *(f"{m}.{plane}" for m in ("gate", "up", "down") for plane in ("weight", "scale", "bias")),
            "rescale",
        ]
    ]
    assert list(order) == [n for n in names if n in order]
    return {name: tensor["dtype"] for name, tensor in stored.items()}


def expected_dtypes(prefix, matrix):
    kind, _, block = matrix["format"].partition(":")
    dtypes = {prefix + "weight": "U8"}
    if kind.startswith("q"):
        dtypes[prefix + "scale"] = "BF16" if block else "F32"
    if "bias_name" in matrix:
        dtypes[prefix + "bias"] = "F32"
    return dtypes


def check_bias(plane, plain):
    bias = plane.view("<f4")
    assert np.array_equal(bias[: len(plain)], plain)
    assert not bias[len(plain) :].view("<u4").any()


def check_matrix(document, tensors, prefix, matrix, plain):
    assert set(matrix["checksums"]) == {n.rsplit(".", 1)[1] for n in tensors if n.startswith(prefix)}
    weights, scales = document["decode"](tensors, prefix, matrix)
    if scales is None:
        assert np.array_equal(weights, plain[prefix + "values"])
        expected = plain[prefix + "values"]
    else:
        assert np.array_equal(weights, plain[prefix + "integers"])
        assert np.array_equal(scales, plain[prefix + "scales"])
        block = int(matrix["format"].partition(":")[2] or weights.shape[1])
        expected = np.array(
            [
                [w * scales[r, c // block] for c, w in enumerate(row)]
                for r, row in enumerate(weights[:20].astype(np.float32))
            ]
        )
    dequantized = document["dequantize"](tensors, prefix, matrix)
    assert dequantized.dtype == np.float32 and dequantized.shape == tuple(matrix["shape"])
    assert np.array_equal(dequantized[: len(expected)], expected)
    if "bias_name" in matrix:
        check_bias(tensors[prefix + "bias"], plain[prefix + "bias"])


def check_rescale(document, tensors, layer, plain, dtypes):
    name = f"layers.{layer['layer']}.rescale"
    assert ("rescale" in layer) == (name in plain) == (name in tensors)
    if "rescale" not in layer:
        return
    assert dtypes[name] == "BF16"
    factors = document["rescale"](tensors, layer)
    assert np.array_equal(factors, plain[name])
    for which in ("up", "down"):
        prefix, matrix = f"layers.{layer['layer']}.{which}.", layer["matrices"][which]
        by_hand = document["dequantize"](tensors, prefix, matrix)
        by_hand = by_hand / factors[:, None] if which == "up" else by_hand * factors
        assert np.array_equal(document["restore"](tensors, layer, which), by_hand)


def check_model(document, path):
    """Returns the formats that were looked at."""
    description, tensors = document["open_packed"](path)
    dtypes = check_container(path, description, tensors)
    plain = safetensors.numpy.load_file(str(path).replace(".packed.", ".plain."))
    formats = set()
    for layer in description["layers"]:
        shape = [layer["d_ff"], layer["d_model"]]
        assert set(layer["matrices"]) == {"up", "down"} | ({"gate"} if layer["gated"] else set())
        for which, matrix in layer["matrices"].items():
            prefix = f"layers.{layer['layer']}.{which}."
            assert matrix["shape"] == (shape[::-1] if which == "down" else shape)
            wanted = expected_dtypes(prefix, matrix)
            assert {n: d for n, d in dtypes.items() if n.startswith(prefix)} == wanted
            check_matrix(document, tensors, prefix, matrix, plain)
            formats.add(matrix["format"])
        check_rescale(document, tensors, layer, plain, dtypes)
    return formats


def main(command):
    document = code_of_document()
    formats = set()
    with tempfile.TemporaryDirectory(prefix="sluice-test.") as folder:
        subprocess.run([*command, folder], check=True)
        for path in sorted(pathlib.Path(folder).glob("*.packed.safetensors")):
            formats |= check_model(document, path)
            print(f"{path.name}: as documented")
    assert formats == {
        "f32", "bf16", "qc8w", "qb8w:32", "qc4w", "qb4w:32", "qb4w:64", "qb4w:128"
    }, formats


if __name__ == "__main__":
    main(sys.argv[1:])
