"""Writes one basic block as a Python function: slots, destinations, the order of things."""

from __future__ import annotations

from collections.abc import Callable

from gemm_lab.emulator.codegen.expressions import Expressions, Leaves, unknown
from gemm_lab.emulator.ptx.ir import Instr, Operand, Reg
from gemm_lab.emulator.ptx.opset import read_registers, written_registers

__all__ = ["BlockEmitter", "Emit", "unknown"]

Emit = Callable[["BlockEmitter", Instr], None]


class BlockEmitter(Expressions):
    """Turns a block's instructions into a function's text; see Expressions for its state."""

    def dying(self, number: int) -> bool:
        """True when the current instruction is the register's last use here."""
        return self.last.get(number) == self.at and not self.block.live_out >> number & 1

    def leaf(self, *ops: Operand | None) -> Leaves:
        """What a result's shape depends on."""
        out: Leaves = frozenset()
        for op in ops:
            if isinstance(op, Reg) and not op.special:
                self.slot_of(op)
                out |= self.leaves[self.number(op)]
            elif isinstance(op, Reg):
                out |= {("x", op.name)}
        return out

    def dst(
        self,
        op: Operand | None,
        text: str,
        rep: str,
        leaves: Leaves | None = None,
        owned: bool = False,
    ) -> None:
        """Assign to a destination; under a guard only where it holds."""
        if op is None:
            return
        if not isinstance(op, Reg) or op.special or op.negated:
            raise self.fail("a destination that is no register")
        number = self.number(op)
        have = self.rep(op)
        if have != rep:
            text = self.convert(f"({text})", rep, have)
        if self.guard is not None:
            p = f"s{self.slot_of(Reg(self.guard.name))}"
            old = f"s{self.slot_of(op)}"
            pair = f"{old},{text}" if self.guard.negated else f"{text},{old}"
            text = f"where({p},{pair})"
            leaves = None
            owned = False
        slot = self.slots.get(number)
        if slot is None:
            slot = self.slots[number] = self.take_slot()
        self.line(f"s{slot}={text}")
        self.leaves[number] = leaves if leaves is not None else frozenset((("n", self.fresh()),))
        self.touched.add(number)
        self.owned.discard(number)
        if owned:
            self.owned.add(number)

    def adopt(self, op: Reg, source: Reg) -> None:
        """The destination takes over the slot of a source that dies."""
        new, old = self.number(op), self.number(source)
        if new != old:
            slot = self.slots.pop(old)
            kept = self.slots.get(new)
            if kept is not None:
                self.free.append(kept)
            self.slots[new] = slot
            self.owned.discard(old)
            self.owned.add(new)
        self.leaves[new] = self.leaves[old]
        self.touched.add(new)

    # ---- the block ----
    def prepare(self) -> None:
        """Find each register's last use."""
        instrs = self.all_instrs()
        for at, ins in enumerate(instrs):
            for name in (*read_registers(ins), *written_registers(ins)):
                self.last[self.program.registers[name]] = at

    def all_instrs(self) -> list[Instr]:
        """The block's instructions with its terminator."""
        last = self.block.last
        return [*self.block.instrs, last] if last is not None else self.block.instrs

    def release(self) -> None:
        """Slots of registers whose last use has passed become free."""
        ins = self.ins
        assert ins is not None
        for name in {*read_registers(ins), *written_registers(ins)}:
            number = self.program.registers[name]
            if self.dying(number) and number in self.slots:
                self.free.append(self.slots.pop(number))
                self.owned.discard(number)

    def spill(self) -> None:
        """Write back what later blocks need."""
        out = self.block.live_out
        for number in sorted(self.touched):
            if out >> number & 1 and number in self.slots:
                self.line(f"R[{number}]=s{self.slots[number]}")

    def write(self, table: dict[str, Emit], finish: Callable[[BlockEmitter], None]) -> str:
        """The function's text."""
        self.prepare()
        for at, ins in enumerate(self.all_instrs()):
            self.at = at
            self.ins = ins
            self.guard = ins.guard
            if ins is self.block.last:
                break
            emit = table.get(ins.name)
            if emit is None:
                raise unknown(ins)
            try:
                self.guard_accumulators(ins)
                self.guard_fragments(ins)
                emit(self, ins)
            except (IndexError, KeyError, AttributeError, TypeError, ValueError) as error:
                raise unknown(ins, "operands or types that it cannot take") from error
            self.release()
        self.ins = self.block.last
        try:
            finish(self)
        except (IndexError, KeyError, AttributeError, TypeError, ValueError) as error:
            raise self.fail("operands or types that it cannot take") from error
        body = "\n ".join(self.lines)
        return f"def f(R,X,m):\n {body}\n"

    def guard_accumulators(self, ins: Instr) -> None:
        """Ordinary code that touches wgmma accumulators must find them done."""
        accumulators = self.program.accumulators
        if not accumulators or ins.name == "wgmma":
            return
        touched = {
            self.program.registers[name] for name in (*read_registers(ins), *written_registers(ins))
        } & accumulators
        fresh = touched - self.wgmma_seen
        if fresh:
            self.wgmma_seen |= fresh
            # Compilers put moves between a fence and its products, and ptxas sees to them.
            dirty = ins.name != "mov"
            names = tuple(sorted(fresh))
            self.line(f"X.wgmma_use({names},{dirty},{self.mask},{self.site()})")

    def guard_fragments(self, ins: Instr) -> None:
        """Ordinary code that overwrites registers of A must find their products done.

        Moves are let pass, as a compiler's own: ptxas gives each of its copies a register.
        """
        fragments = self.program.fragments
        if not fragments or ins.name in ("wgmma", "mov"):
            return
        fresh = {self.program.registers[name] for name in written_registers(ins)} & fragments
        fresh -= self.wgmma_seen
        if fresh:
            self.wgmma_seen |= fresh
            self.line(f"X.wgmma_overwrite({tuple(sorted(fresh))},{self.mask},{self.site()})")

    def guard_mask(self) -> str:
        """The mask of the current instruction: the block's, or one under its guard."""
        if self.guard is None:
            return self.mask
        name = self.fresh("g")
        p = self.slot_of(Reg(self.guard.name))
        self.line(f"{name}=X.guard(s{p},{self.mask},{self.guard.negated})")
        return name
