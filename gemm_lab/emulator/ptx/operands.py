"""Operands of PTX instructions: registers, literals, addresses, vectors."""

from __future__ import annotations

import re
import struct

from gemm_lab.emulator.faults import PtxError, Where
from gemm_lab.emulator.ptx.ir import Imm, Mem, Operand, Pair, Reg, Sym, Vec

__all__ = ["Scope", "parse_integer", "parse_operand", "split_operands"]

SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid|(?:n?cluster|cluster_(?:n?ctaid))(?:id)?|n?clusterid)\.[xyzw]"
    r"|cluster_n?ctarank|is_explicit_cluster|laneid|n?warpid|n?smid|gridid|lanemask_(?:eq|lt|le|gt|ge)"
    r"|clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|total_smem_size|dynamic_smem_size|aggr_smem_size"
    r"|reserved_smem_offset_(?:begin|end|cap|[0-3])|envreg\d+|current_graph_exec)$"
)
INTEGER = re.compile(r"[-+~!]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
FLOAT_BITS = re.compile(r"([-+]?)0([fFdD])([0-9a-fA-F]{8,16})$")
DECIMAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$")
NAME = re.compile(r"(?:[A-Za-z][\w$]*|[_$%][\w$]+|_)$")
RANGE = re.compile(r"^(.*?)(\d+)$")
ADDRESS = re.compile(r"^(.+?)\s*(?:\+\s*([-+]?\s*[\w]+)|(-\s*\w+))?$")


class Scope:
    """Names in force: registers (ranges are kept as ranges) and renamed inner names.

    `registers` collects every register that is used, with its type.
    """

    def __init__(self, registers: dict[str, str]) -> None:
        self.registers = registers
        self.frames: list[dict[str, tuple[str, str]]] = [{}]
        self.ranges: list[dict[str, tuple[int, str, str]]] = [{}]
        self.cache: dict[str, Operand | None] = {}
        self.counter = 0

    def push(self) -> None:
        self.frames.append({})
        self.ranges.append({})
        self.counter += 1

    def pop(self) -> bool:
        """Leave a scope; False when there is none to leave."""
        if len(self.frames) == 1:
            return False
        if self.frames.pop() or self.ranges[-1]:
            self.cache.clear()
        self.ranges.pop()
        return True

    def declare(self, name: str, count: int | None, kind: str) -> None:
        """A register, or `name<count>`."""
        suffix = f"@{self.counter}" if len(self.frames) > 1 else ""
        if count is not None:
            self.ranges[-1][name] = (count, kind, suffix)
        else:
            self.frames[-1][name] = (name + suffix, kind)
        if len(self.frames) > 1:
            self.cache.clear()

    def rename(self, name: str, new: str, kind: str) -> None:
        """An inner variable or label under a name of its own."""
        self.frames[-1][name] = (new, kind)
        self.cache.clear()

    def lookup(self, name: str) -> tuple[str, str] | None:
        """(unique name, type) of a declared name; the type is "" for variables and labels."""
        split = RANGE.match(name)
        for frame, ranges in zip(reversed(self.frames), reversed(self.ranges), strict=True):
            if name in frame:
                return frame[name]
            if split and split[1] in ranges:
                count, kind, suffix = ranges[split[1]]
                if int(split[2]) < count:
                    return name + suffix, kind
        return None


def parse_integer(text: str) -> int:
    """A PTX integer literal; ValueError when it is none."""
    text = text.replace(" ", "")
    if not INTEGER.match(text) or len(text) > 24:
        raise ValueError(text)
    sign = 1
    invert = False
    if text[0] in "-+~!":
        sign = -1 if text[0] == "-" else 1
        invert = text[0] == "~"
        text = text[1:]
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X"):
        value = int(text, 16)
    elif text[:2] in ("0b", "0B"):
        value = int(text[2:], 2)
    elif len(text) > 1 and text[0] == "0":
        value = int(text, 8)
    else:
        value = int(text)
    return ~value if invert else sign * value


def split_operands(text: str) -> list[str]:
    """Split at commas outside brackets, braces and parentheses."""
    if "{" not in text and "[" not in text and "(" not in text:
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts: list[str] = []
    depth = 0
    start = 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    if last or parts:
        parts.append(last)
    return parts


def parse_operand(text: str, scope: Scope, line: int) -> Operand | None:
    """One operand; None is the sink `_`. PtxError for anything else."""
    found = scope.cache.get(text, scope)
    if not isinstance(found, Scope):
        return found
    operand = _parse(text, scope, line)
    scope.cache[text] = operand
    return operand


def _bad(text: str, line: int) -> PtxError:
    shown = text if len(text) < 60 else text[:57] + "..."
    return PtxError("PTX syntax", f"cannot read operand {shown!r}", where=Where(ptx_line=line))


def _register(text: str, scope: Scope) -> Reg | None:
    found = scope.lookup(text)
    if found is not None and found[1]:
        scope.registers[found[0]] = found[1]
        return Reg(found[0])
    if SPECIAL.match(text):
        return Reg(text, special=True)
    return None


def _parse(text: str, scope: Scope, line: int) -> Operand | None:
    if text == "_":
        return None
    first = text[:1]
    if first in "%_$" or first.isalpha():
        at = text.find("|")
        if at > 0:
            return Pair(
                parse_operand(text[:at].strip(), scope, line),
                parse_operand(text[at + 1 :].strip(), scope, line),
            )
        register = _register(text, scope)
        if register is not None:
            return register
        if first == "%":
            raise _bad(text, line)
        if text == "WARP_SZ":
            return Imm(32)
        return _symbol(text, scope, line)
    if first == "[":
        return _memory(text, scope, line)
    if first == "{":
        if not text.endswith("}"):
            raise _bad(text, line)
        items = tuple(parse_operand(part, scope, line) for part in split_operands(text[1:-1]))
        return Vec(items)
    if first == "!":
        register = _register(text[1:].strip(), scope)
        if register is not None:
            return Reg(register.name, register.special, negated=True)
    return _literal(text, line)


def _literal(text: str, line: int) -> Imm:
    bits = FLOAT_BITS.match(text)
    if bits:
        double = bits[2] in "dD"
        if len(bits[3]) != (16 if double else 8):
            raise _bad(text, line)
        raw = bytes.fromhex(bits[3])
        value = float(struct.unpack(">d" if double else ">f", raw)[0])
        if value != value:  # keep the payload of a NaN: floats would lose it
            return Imm(int(bits[3], 16), 64 if double else 32)
        return Imm(-value if bits[1] == "-" else value, 64 if double else 32)
    try:
        return Imm(parse_integer(text))
    except ValueError:
        pass
    if DECIMAL.match(text):
        return Imm(float(text))
    raise _bad(text, line)


def _symbol(text: str, scope: Scope, line: int) -> Sym:
    name, offset = text, 0
    if "+" in text:
        name, _, tail = text.partition("+")
        name = name.strip()
        try:
            offset = parse_integer(tail.strip())
        except ValueError:
            raise _bad(text, line) from None
    if not NAME.match(name):
        raise _bad(text, line)
    found = scope.lookup(name)
    return Sym(found[0] if found else name, offset)


def _memory(text: str, scope: Scope, line: int) -> Mem:
    if not text.endswith("]"):
        raise _bad(text, line)
    parts = split_operands(text[1:-1])
    if not parts:
        raise _bad(text, line)
    coords: tuple[Operand, ...] = ()
    if len(parts) > 1:
        items = [parse_operand(part, scope, line) for part in parts[1:]]
        if any(item is None for item in items):
            raise _bad(text, line)
        coords = tuple(item for item in items if item is not None)
    match = ADDRESS.match(parts[0])
    if not match:
        raise _bad(text, line)
    base, tail = match[1].strip(), match[2] or match[3]
    try:
        offset = parse_integer(tail.replace("+", "")) if tail else 0
    except ValueError:
        raise _bad(text, line) from None
    if INTEGER.match(base):
        return Mem(None, parse_integer(base) + offset, coords)
    operand = parse_operand(base, scope, line)
    if isinstance(operand, Reg) and not operand.special:
        return Mem(operand, offset, coords)
    if isinstance(operand, Sym):
        return Mem(Sym(operand.name), operand.offset + offset, coords)
    raise _bad(text, line)
