"""Reading a model into FP32 arrays, and writing a copy with tensors that were changed: a GGUF file,
or a folder with model.safetensors and names of the Llama family."""

import json
import pathlib
import shutil

import gguf
import numpy as np
import safetensors
from safetensors.numpy import save_file

# Metadata that the writer makes itself.
OWN_KEYS = {"general.architecture", "general.file_type", "general.quantization_version"}


def open_model(path):
    return FolderModel(path) if pathlib.Path(path).is_dir() else GgufModel(path)


class FolderModel:
    """`tensors`: name -> float32 array, as stored: [out, in]."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.layers = json.loads((self.path / "config.json").read_text())["num_hidden_layers"]
        stored = safetensors.deserialize((self.path / "model.safetensors").read_bytes())
        self.tensors = {name: self.decode(info) for name, info in stored}

    @staticmethod
    def decode(info):
        if info["dtype"] == "BF16":
            values = (np.frombuffer(info["data"], np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif info["dtype"] == "F32":
            values = np.frombuffer(info["data"], np.float32)
        else:
            raise ValueError(f"tensors of type {info['dtype']} are not read")
        return values.reshape(info["shape"])

    def matrix_names(self, layer):
        return [f"model.layers.{layer}.mlp.{m}_proj.weight" for m in ("gate", "up", "down")]

    def write(self, path):
        out = pathlib.Path(path)
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.path / "config.json", out)
        save_file(self.tensors, out / "model.safetensors")


class GgufModel:
    """`tensors`: name -> float32 array, as stored: [out, in]."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.architecture = self.reader.fields["general.architecture"].contents()
        self.layers = int(self.reader.fields[self.architecture + ".block_count"].contents())
        self.tensors = {t.name: read_f32(t) for t in self.reader.tensors}

    def matrix_names(self, layer):
        return [f"blk.{layer}.ffn_{m}.weight" for m in ("gate", "up", "down")]

    def write(self, path, encoded=None):
        """`encoded`: name -> (bytes [rows, bytes per row], GGMLQuantizationType), in place of the
        tensor; everything else is written as F32."""
        encoded = encoded or {}
        writer = gguf.GGUFWriter(path, self.architecture)
        copy_metadata(self.reader, writer)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        for name, values in self.tensors.items():
            if name in encoded:
                data, kind = encoded[name]
                writer.add_tensor(name, data, raw_dtype=kind)
            else:
                writer.add_tensor(name, values.astype(np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def read_f32(tensor):
    shape = tuple(int(n) for n in reversed(tensor.shape))
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)


def copy_metadata(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in OWN_KEYS:
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)
