"""Functions and loops of compiled code, as `objdump` prints them."""

import dataclasses
import re
import subprocess

_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\t(?:\{[a-z]+\} )?(\S+)(?:\s+(.*))?$")
_TARGET = re.compile(r"(?:^|, )([0-9a-f]+) <")


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    name: str
    operands: str

    def target(self):
        """Where a branch goes, if this is one to a place in the same function; or None."""
        if not re.match(r"(b|b\..*|cbn?z|tbn?z|j[a-z]+)$", self.name):
            return None
        found = _TARGET.search(self.operands)
        return int(found.group(1), 16) if found else None


def functions(binary, objdump="objdump", symbol=None):
    """Yields (demangled name, instructions) of each function of an object, archive or library, or of
    the one function `symbol`."""
    which = "-d" if symbol is None else f"--disassemble={symbol}"
    text = subprocess.run(
        [objdump, which, "--no-show-raw-insn", "--demangle", str(binary)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    name, body = None, []
    for line in text.splitlines():
        if header := _FUNCTION.match(line):
            if body:
                yield name, body
            name, body = header.group(1), []
        elif found := _INSTRUCTION.match(line):
            operands = re.split(r"\s+(?://|#[ <])", found.group(3) or "")[0].strip()
            body.append(Instruction(int(found.group(1), 16), found.group(2), operands))
    if body:
        yield name, body


def loops(body):
    """All loops of a function: what lies between a branch backwards and its target."""
    found = set()
    for at, instruction in enumerate(body):
        target = instruction.target()
        if target is not None and body[0].address <= target <= instruction.address:
            begin = next(i for i, other in enumerate(body) if other.address >= target)
            found.add((begin, at + 1))
    return sorted(found, key=lambda span: span[1] - span[0])


def hottest_loop(body, is_dot, nest=0):
    """The loop around the most dot products that has no other such loop in it; with `nest` 1, the
    loop around that one. None if there are no dot products in loops."""

    def dots(span):
        return sum(bool(is_dot(i)) for i in body[span[0] : span[1]])

    spans = [span for span in loops(body) if dots(span)]
    inner = [
        a for a in spans if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in spans)
    ]
    if not inner:
        return None
    # Of two that are as hot, the one that does more: it has a block's end in it.
    best = max(inner, key=lambda span: (dots(span), span[1] - span[0]))
    around = [s for s in spans if s[0] <= best[0] and best[1] <= s[1]]
    if nest >= len(around):
        return None
    begin, end = around[nest]
    return body[begin:end]
