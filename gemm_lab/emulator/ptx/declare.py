"""Declarations: variables with initialisers, function headers with parameters."""

from __future__ import annotations

import re
import struct

from gemm_lab.emulator.faults import PtxError, Where
from gemm_lab.emulator.ptx.ir import Function, Param, Variable
from gemm_lab.emulator.ptx.operands import parse_integer, split_operands
from gemm_lab.emulator.ptx.types import TYPE_BYTES

__all__ = ["MAX_VARIABLE_BYTES", "parse_header", "parse_variable"]

MAX_VARIABLE_BYTES = 1 << 30

VARIABLE = re.compile(
    r"((?:\.\w+\s+(?:\d+\s+)?)+)([A-Za-z_$%][\w$]*)((?:\s*\[[^\]]*\])*)\s*(?:=\s*(.*))?$", re.S
)
HEADER = re.compile(
    r"(?P<linkage>(?:\.\w+\s+)*?)\.(?P<kind>entry|func)\s*(?P<attrs>(?:\.\w+\s+)*)"
    r"(?:\((?P<ret>[^()]*)\)\s*)?"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\((?P<params>[^()]*)\))?\s*(?P<rest>.*)$",
    re.S,
)
PARAM = re.compile(
    r"\.(?:param|reg)\s+(?P<pre>(?:\.(?:align\s+\d+|ptr|global|shared|const|local)\s+)*)"
    r"\.(?P<type>\w+)\s+(?P<mid>(?:\.(?:align\s+\d+|ptr|global|shared|const|local)\s+)*)"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\[\s*(?P<count>\d*)\s*\])?$",
    re.S,
)
DIRECTIVE = re.compile(r"\.(\w+)\s*([\d,\s]*)")


def _fail(message: str, text: str, line: int) -> PtxError:
    shown = " ".join(text.split())[:80]
    return PtxError("PTX syntax", message, where=Where(ptx_line=line, instruction=shown))


def _power_of_two(value: int) -> bool:
    return 0 < value <= 4096 and value & (value - 1) == 0


def parse_variable(text: str, line: int) -> list[Variable]:
    """`.global .align 4 .b8 name[16] = {...}`, or several names of one type."""
    if "=" not in text and "," in text:
        first, *others = split_operands(text)
        found = VARIABLE.match(first)
        if not found:
            raise _fail("cannot read the declaration", text, line)
        out = parse_variable(first, line)
        for other in others:
            out += parse_variable(f"{found[1]} {other}", line)
        return out
    found = VARIABLE.match(text)
    if not found:
        raise _fail("cannot read the declaration", text, line)
    words = re.findall(r"\.(\w+)(?:\s+(\d+))?", found[1])
    names = [word for word, _ in words]
    space = next((n for n in names if n in ("global", "const", "shared", "local", "param")), "")
    kind = next((n for n in names if n in TYPE_BYTES), "")
    vector = 4 if "v4" in names else 2 if "v2" in names else 1
    if not space or not kind:
        raise _fail("the declaration has no space or no type", text, line)
    if set(names) - set(TYPE_BYTES) - {
        "global", "const", "shared", "local", "param", "align", "v2", "v4",
        "visible", "extern", "weak", "common", "managed", "attribute", "unified",
    }:  # fmt: skip
        raise _fail("an unknown word in the declaration", text, line)
    unit = TYPE_BYTES[kind] * vector
    align = next((int(value) for word, value in words if word == "align" and value), unit)
    if not _power_of_two(align):
        raise _fail("the alignment is no power of two up to 4096", text, line)
    count, dynamic = 1, False
    for dim in re.findall(r"\[([^\]]*)\]", found[3]):
        if not dim.strip():
            dynamic = True
            continue
        try:
            count *= parse_integer(dim.strip())
        except ValueError:
            raise _fail("cannot read the array's size", text, line) from None
    if count < 0 or count * unit > MAX_VARIABLE_BYTES:
        raise _fail(f"more than {MAX_VARIABLE_BYTES} bytes in one variable", text, line)
    variable = Variable(found[2], space, count * unit, align, dynamic)
    if found[4]:
        _initialise(variable, found[4].strip(), kind, text, line)
        dynamic = False
    if dynamic and variable.space == "shared":
        variable.size_bytes = 0
    return [variable]


def _initialise(variable: Variable, init: str, kind: str, text: str, line: int) -> None:
    unit = TYPE_BYTES[kind]
    items = split_operands(re.sub(r"[{}]", " ", init))
    data = bytearray()
    for item in items:
        word = item.strip()
        masked = re.match(r"0[xX]([fF]+0*)\(\s*(.*)\s*\)$", word)  # 0xFF00(symbol): one byte of it
        if masked:
            raise PtxError(
                "unknown to the emulator", f"initialiser {word!r}", where=Where(ptx_line=line)
            )
        pointer = re.match(r"(?:generic\s*\(\s*)?([A-Za-z_$][\w$]*)\s*\)?\s*(?:\+\s*\d+)?$", word)
        if pointer and unit == 8:
            variable.pointers[len(data)] = pointer[1]
            data += bytes(8)
            continue
        try:
            if re.match(r"0[fF][0-9a-fA-F]{8}$", word):
                data += struct.pack("<I", int(word[2:], 16))
            elif re.match(r"0[dD][0-9a-fA-F]{16}$", word):
                data += struct.pack("<Q", int(word[2:], 16))
            else:
                data += (parse_integer(word) & ((1 << 8 * unit) - 1)).to_bytes(unit, "little")
        except ValueError:
            raise _fail("cannot read the initialiser", text, line) from None
    if variable.dynamic:
        variable.size_bytes, variable.dynamic = len(data), False
    if len(data) > variable.size_bytes:
        raise _fail("more values than the variable holds", text, line)
    variable.init = bytes(data)


def _params(text: str | None, whole: str, line: int) -> list[Param]:
    params: list[Param] = []
    offset = 0
    for part in split_operands(text or ""):
        found = PARAM.match(part.strip())
        if not found or found["type"] not in TYPE_BYTES:
            raise _fail("cannot read a parameter", part or whole, line)
        kind = found["type"]
        unit = TYPE_BYTES[kind]
        size = unit * int(found["count"]) if found["count"] else unit
        aligns = re.findall(r"align\s+(\d+)", found["pre"] if "ptr" not in found["pre"] else "")
        align = int(aligns[0]) if aligns else unit
        if not _power_of_two(align) or size > 1 << 16:
            raise _fail("a parameter's size or alignment is out of range", part, line)
        offset = -(-offset // align) * align
        params.append(Param(found["name"], kind, size, align, offset))
        offset += size
    return params


def parse_header(text: str, line: int) -> Function:
    """A function's name, parameters and directives such as .maxntid."""
    found = HEADER.match(text)
    if not found:
        raise _fail("cannot read the function's header", text, line)
    directives: dict[str, tuple[int, ...]] = {}
    for word, values in DIRECTIVE.findall(found["rest"] + " " + found["attrs"]):
        numbers = tuple(int(v) for v in re.findall(r"\d+", values))
        directives[word] = numbers
    return Function(
        name=found["name"],
        entry=found["kind"] == "entry",
        line=line,
        params=_params(found["params"], text, line),
        returns=_params(found["ret"], text, line),
        directives=directives,
    )
