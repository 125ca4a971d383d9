"""PTX text to a Module. Every fault is a PtxError with its line."""

from __future__ import annotations

import re

from gemm_lab.emulator.faults import PtxError, Where
from gemm_lab.emulator.ptx.declare import parse_header, parse_variable
from gemm_lab.emulator.ptx.ir import Function, Instr, Label, Loc, Module, Operand, Reg
from gemm_lab.emulator.ptx.operands import Scope, parse_operand, split_operands
from gemm_lab.emulator.ptx.scan import Statement, statements, strip_comments
from gemm_lab.emulator.ptx.types import is_type

__all__ = ["MAX_PTX_BYTES", "parse_ptx"]

MAX_PTX_BYTES = 64 << 20

INSTRUCTION = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([a-z][\w]*)((?:\.|::)[\w.:]+)?\s*(.*)$", re.S)
LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
REG_ITEM = re.compile(r"([A-Za-z_%$][\w$]*)\s*(?:<\s*(\d+)\s*>)?$")
CALL = re.compile(
    r"\s*(?:\(([^()]*)\)\s*,)?\s*([%\w$]+)\s*(?:,\s*\(([^()]*)\))?\s*(?:,\s*([\w$]+))?$"
)
BRACE = re.compile(r"[{}]")
INNER_LABEL = re.compile(r"(?<![\w$:.])([A-Za-z_$][\w$]*)\s*:(?!:)")
SPACES = {"global", "const", "shared", "local", "param"}


def parse_ptx(text: str) -> Module:
    """The module that a PTX text holds."""
    if len(text) > MAX_PTX_BYTES:
        raise PtxError("PTX syntax", f"more than {MAX_PTX_BYTES} bytes of PTX")
    return _Parser(strip_comments(text.replace("\0", ""))).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.module = Module()
        self.files = {int(number): name for number, name in FILE.findall(text)}
        self.function: Function | None = None
        self.scope = Scope({})
        self.loc: Loc | None = None
        self.depth = 0
        self.opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.pending: str | None = None

    def fail(self, message: str, statement: Statement) -> PtxError:
        shown = statement.text.split("\n")[0][:80]
        return PtxError(
            "PTX syntax", message, where=Where(ptx_line=statement.line, instruction=shown)
        )

    def parse(self) -> Module:
        for statement in statements(self.text):
            if self.function is None:
                self.at_top(statement)
            else:
                self.in_body(statement)
        if self.function is not None:
            raise PtxError("PTX syntax", f"{self.function.name} is never closed")
        if not self.module.target:
            raise PtxError("PTX syntax", "no .target directive: this is no whole PTX text")
        for function in self.module.functions.values():
            _check_labels(function)
        return self.module

    def at_top(self, statement: Statement) -> None:
        kind, text = statement.kind, statement.text
        if kind == "line":
            self.directive(statement)
        elif kind in ("head", "text") and text.startswith("."):
            words = set(re.findall(r"\.(\w+)", text.split("(")[0].split("=")[0]))
            if words & {"func", "entry"}:
                function = parse_header(text, statement.line)
                if kind == "head":
                    self.enter(function, statement)
                elif function.name not in self.module.functions:
                    function.external = True
                    self.module.functions[function.name] = function
            elif words & SPACES:
                for variable in parse_variable(text, statement.line):
                    self.module.variables[variable.name] = variable
            elif not words & {"alias", "section", "pragma", "reg"}:
                raise self.fail("unknown directive", statement)
        else:
            raise self.fail("an instruction outside a function", statement)

    def enter(self, function: Function, statement: Statement) -> None:
        known = self.module.functions.get(function.name)
        if known is not None and not known.external:
            raise self.fail(f"{function.name} is defined twice", statement)
        self.module.functions[function.name] = function
        self.function = function
        self.scope = Scope(function.registers)
        self.loc = None
        self.depth = 0

    def directive(self, statement: Statement) -> None:
        text = statement.text
        if text.startswith(".version"):
            self.module.version = text.split()[-1]
        elif text.startswith(".target"):
            self.module.target = re.split(r"[\s,]+", text)[1] if len(text.split()) > 1 else ""
        elif text.startswith(".loc"):
            found = LOC.match(text)
            if not found:
                raise self.fail("a malformed .loc", statement)
            file, line = found[1], found[2]
            main = min(self.files, default=1)
            # Code from a header is told at the user's line that called it.
            if found[3] and int(file) != main and int(found[4]):
                file, line = found[3], found[4]
            if int(line):
                self.loc = Loc(self.files.get(int(file), "kernel"), int(line))

    def in_body(self, statement: Statement) -> None:
        function = self.function
        assert function is not None
        if statement.kind == "open":
            self.depth += 1
            if self.depth > 1:
                if self.depth > 200:
                    raise self.fail("scopes nested too deeply", statement)
                self.scope.push()
                self.predeclare_labels(statement)
        elif statement.kind == "close":
            self.depth -= 1
            if self.depth == 0:
                self.function = None
            else:
                self.scope.pop()
        elif statement.kind == "line":
            self.directive(statement)
        elif statement.kind == "label":
            found = self.scope.lookup(statement.text)
            self.pending = found[0] if found else statement.text
            function.body.append(Label(self.pending))
        elif statement.text.startswith("."):
            self.declaration(statement, function)
        elif statement.kind == "text":
            function.body.append(self.instruction(statement))
        else:
            raise self.fail("a brace in a strange place", statement)

    def predeclare_labels(self, statement: Statement) -> None:
        """Labels of an inner scope may be used before they appear: give them their names now."""
        start = statement.at
        depth = 0
        end = len(self.text)
        for match in BRACE.finditer(self.text, start):
            depth += 1 if match[0] == "{" else -1
            if depth == 0:
                end = match.start()
                break
        for match in INNER_LABEL.finditer(self.text, start, end):
            self.scope.rename(match[1], f"{match[1]}@{self.scope.counter}", "")

    def declaration(self, statement: Statement, function: Function) -> None:
        text = statement.text
        registers = REGISTERS.match(text)
        if registers:
            kind = registers[1]
            if not is_type(kind):
                raise self.fail(f"unknown register type .{kind}", statement)
            for item in registers[2].split(","):
                found = REG_ITEM.match(item.strip())
                if not found:
                    raise self.fail("cannot read the register declaration", statement)
                self.scope.declare(found[1], int(found[2]) if found[2] else None, kind)
            return
        words = re.findall(r"\.(\w+)", text.split("=")[0])
        if words and words[0] == "branchtargets":
            targets = text.split(None, 1)[1] if " " in text or "\t" in text else ""
            function.tables[self.pending or ""] = [
                self.label_name(name.strip()) for name in targets.split(",") if name.strip()
            ]
        elif SPACES & set(words):
            for variable in parse_variable(text, statement.line):
                name = variable.name
                if len(self.scope.frames) > 1:
                    variable.name = f"{name}@{self.scope.counter}"
                    self.scope.rename(name, variable.name, "")
                function.variables[variable.name] = variable
        elif not words or words[0] not in {"callprototype", "calltargets", "pragma"}:
            raise self.fail("unknown directive", statement)

    def label_name(self, name: str) -> str:
        found = self.scope.lookup(name)
        return found[0] if found else name

    def instruction(self, statement: Statement) -> Instr:
        line = statement.line
        match = INSTRUCTION.match(statement.text)
        if not match:
            raise self.fail("cannot read this statement", statement)
        negated, guard_name, name, tail, rest = match.groups()
        guard: Reg | None = None
        if guard_name:
            operand = parse_operand(guard_name, self.scope, line)
            if not isinstance(operand, Reg) or operand.special:
                raise self.fail("the guard is no predicate register", statement)
            guard = Reg(operand.name, negated=bool(negated))
        key = tail or ""
        mods = self.opcodes.get(key)
        if mods is None:
            words = tuple(word for word in key.replace("::", ":").split(".") if word)
            mods = self.opcodes[key] = ("", words)
        callee = ""
        operands: tuple[Operand | None, ...]
        if name == "call":
            callee, operands = self.call(rest, statement)
        else:
            operands = tuple(parse_operand(part, self.scope, line) for part in split_operands(rest))
        return Instr(name, mods[1], operands, line, self.loc, guard, callee)

    def call(self, rest: str, statement: Statement) -> tuple[str, tuple[Operand | None, ...]]:
        """Callee and operands: a Vec of return slots, a Vec of arguments."""
        found = CALL.match(rest)
        if not found:
            raise self.fail("cannot read this call", statement)

        def vec(text: str | None) -> Operand | None:
            return parse_operand("{" + (text or "").strip() + "}", self.scope, statement.line)

        if found[2].startswith("%") or found[4]:
            raise PtxError(
                "unknown to the emulator",
                "an indirect call",
                where=Where(ptx_line=statement.line, instruction=statement.text.split("\n")[0]),
            )
        return found[2], (vec(found[1]), vec(found[3]))


def _check_labels(function: Function) -> None:
    seen: set[str] = set()
    for item in function.body:
        if isinstance(item, Label):
            if item.name in seen:
                raise PtxError("PTX syntax", f"label {item.name} stands twice in {function.name}")
            seen.add(item.name)
