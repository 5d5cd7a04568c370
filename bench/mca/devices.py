"""The cores that kernels are judged for, and what they are asked to run.

Clocks are those of the device named. DRAM is what one program can read, as published for the board
(sources in bench/README.md); None where the core is in devices of all kinds.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Device:
    core: str
    model: str  # llvm-mca's -mcpu
    ghz: float
    target: str  # the kernels that sluice chooses there
    example: str
    cores: int = 1
    dram: float | None = None  # GB/s


DEVICES = [
    Device("A53", "cortex-a53", 1.0, "NEON_WITHOUT_AES", "Pi Zero 2 W"),
    Device("A72", "cortex-a57", 1.8, "NEON_WITHOUT_AES", "Pi 4", 4, 5.5),
    Device("A55", "cortex-a55", 2.0, "NEON_DOTPROD", "phones"),
    Device("A76", "neoverse-n1", 2.4, "NEON_DOTPROD", "Pi 5", 4, 14.9),
    Device("A510", "cortex-a510", 2.0, "NEON_I8MM", "phones"),
    Device("N2", "neoverse-n2", 3.0, "NEON_I8MM", "servers; A710"),
]


@dataclasses.dataclass(frozen=True)
class Loop:
    """An inner loop: which function's, and what it computes."""

    name: str
    tokens: int
    function: str  # a regular expression, on the demangled name
    weight_bytes: float  # of one weight, scales included
    dot: str  # the instruction that it must be made of
    nest: int = 0  # disassembly.hottest_loop


def _row(weights, mode):
    return rf"::RowTile<.*::{weights}, \(.*Mode\){mode}, 1ul>::Run\("


def _tile(tile, weights, mode, tokens, strips=1):
    return rf"::{tile}<[^<]*::{weights}, \(.*Mode\){mode}, {tokens}ul, {strips}ul>::Run\("


BYTES = {"qb4w:32": 0.5 + 2 / 32, "qc4w": 0.5, "qc8w": 1.0}
_FORMATS = [
    ("qb4w:32", "Int4Weights", 0),
    ("qc4w", "Int4Weights", 3),
    ("qc8w", "Int8Weights", 3),
]

def _loops(tile, tokens, dot):
    function = (lambda w, m: _row(w, m)) if tokens == 1 else (lambda w, m: _tile(tile, w, m, tokens))
    return [Loop(f, tokens, function(w, m), BYTES[f], dot) for f, w, m in _FORMATS]


# target -> (object file, loops). One token, then the tile of many.
KERNELS = {
    "NEON_WITHOUT_AES": [
        ("neon_without_aes", _loops("RowTile", 1, "smlal2?|smull2?")),
        ("neon_without_aes", _loops("TokenTile", 2, "smlal2?|smull2?")),
    ],
    "NEON_DOTPROD": [
        ("neon_dotprod", _loops("RowTile", 1, "sdot")),
        ("neon_dotprod", _loops("LaneTile", 8, "sdot")),
    ],
    "NEON_I8MM": [
        ("neon_dotprod", _loops("RowTile", 1, "sdot")),
        ("neon_i8mm", _loops("LaneTile", 8, "smmla")),
    ],
}

# KleidiAI's, of the same formats, in Debian's libXNNPACK. A block of 32 is its innermost loop once;
# the loop around it applies the block's scale. Its int8 activations have one scale a token.
_KLEIDI = "matmul_clamp_f32_qai8dxp"
KLEIDIAI = {
    "NEON_DOTPROD": [
        Loop("qb4w:32", 1, f"kai_kernel_{_KLEIDI}1x8_qsi4c32p8x8_1x8x32_neon_dotprod", BYTES["qb4w:32"], "sdot", 1),
        Loop("qc4w", 1, f"kai_run_{_KLEIDI}1x8_qsi4cxp8x8_1x8x32_neon_dotprod", BYTES["qc4w"], "sdot"),
    ],
    "NEON_I8MM": [
        Loop("qb4w:32", 16, f"kai_kernel_{_KLEIDI}4x8_qsi4c32p4x8_16x4x32_opt32_neon_i8mm", BYTES["qb4w:32"], "smmla"),
        Loop("qc4w", 8, f"kai_run_{_KLEIDI}4x8_qsi4cxp8x8_8x8x32_neon_i8mm", BYTES["qc4w"], "smmla"),
    ],
}  # fmt: skip

# Products that an instruction of this name adds up.
_PRODUCTS = [(r"(us|u|s)?mmla$", 32), (r"(us|s|u)dot$", 16), (r"[su]ml[as]l2?$|[su]mull2?$", 8)]


def products(name):
    for pattern, count in _PRODUCTS:
        if re.match(pattern, name):
            return count
    return 0
