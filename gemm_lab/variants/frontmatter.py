"""Reads a variant file: every table of its front matter, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gemm_lab.core.arch import arch_number
from gemm_lab.core.dtypes import DTYPES, LAYOUTS
from gemm_lab.core.kernel import SWIZZLES, TunableValue
from gemm_lab.core.model_keys import (
    MODEL_KEYS,
    MODEL_OPERAND_KEYS,
    MODEL_OPERANDS,
    MODEL_WORDS,
)
from gemm_lab.core.params import DEFAULT_PARAMS
from gemm_lab.errors import UsageError, VariantError
from gemm_lab.variants.expressions import Expression
from gemm_lab.variants.reader import Reader
from gemm_lab.variants.variant import (
    DTypeSupport,
    LaunchStep,
    Rule,
    TensorMapDecl,
    Tunable,
    Variant,
    Workspace,
    WorkspaceMap,
)

__all__ = ["GRID_NAMES", "PROBLEM_NAMES", "SPEC_NAMES", "SUFFIX", "load_variant"]

SUFFIX = ".cu.j2"
# What derived lines and rules may read beside tunables; see resolve.spec_scope.
SPEC_NAMES = (
    "DTYPE", "OUT", "LAYOUT", "LAYOUT_A", "LAYOUT_B", "SIZE_A", "SIZE_B", "SIZE_C",
    "VEC_A", "VEC_B", "VEC_C", "TMA_A", "TMA_B", "TMA_C", "ARCH", "MAX_SMEM", "MAX_STATIC_SMEM",
    "MAX_THREADS", "MAX_REGISTERS", "REGISTERS_PER_SM", "SMEM_PER_SM",
)  # fmt: skip
# What launches, workspace and tensor maps may read besides.
PROBLEM_NAMES = ("M", "N", "K", "batch", "SMS")
# What the grid of a launch may read besides.
GRID_NAMES = ("CLUSTERS",)

_MOST_BYTES = 2**20
_TOP = {
    "title", "idea", "after", "params", "dtype", "tunables", "derived", "rules", "launch",
    "workspace", "tensor_maps", "model",
}  # fmt: skip
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TUNABLE_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def load_variant(path: Path) -> Variant:
    """The variant of a file; VariantError with file, line and key when something is wrong."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise VariantError("is no regular file", file=str(path))
        size_bytes = path.stat().st_size
        if size_bytes > _MOST_BYTES:
            raise VariantError(
                f"has {size_bytes:,} bytes",
                file=str(path),
                hint=f"a variant has at most {_MOST_BYTES:,}",
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise VariantError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except UnicodeDecodeError as error:
        raise VariantError(f"is not UTF-8 text: {error.reason}", file=str(path)) from None
    try:
        return _VariantReader(path, text).variant()
    except RecursionError:
        raise VariantError("the front matter nests too deep", file=str(path)) from None


class _VariantReader(Reader):
    """What each table of the front matter says."""

    def variant(self) -> Variant:
        data = self.table(self.data, "", _TOP)
        # A file's name may hold bytes that are no text in this locale; the source has UTF-8.
        name = os.fsencode(self.path.name).decode("utf-8", "replace").removesuffix(SUFFIX)
        tunables = self.tunables(data.get("tunables", {}))
        known = set(tunables) | set(SPEC_NAMES)
        derived: dict[str, Expression] = {}
        for key, text in self.table_of(data.get("derived", {}), "derived").items():
            if not _TUNABLE_NAME.fullmatch(key) or key in known:
                raise self.fail(
                    f"derived.{key}", "a derived name is new and written in capitals: THREADS"
                )
            derived[key] = self.expression(text, f"derived.{key}", known)
            known.add(key)
        launch_names = known | set(PROBLEM_NAMES)
        maps = self.tensor_maps(data.get("tensor_maps", {}), launch_names)
        workspace = self.workspace(data.get("workspace"), launch_names)
        launches = self.launches(data, name, launch_names)
        self.check_declared(launches, maps, workspace)
        after = data.get("after")
        if after is not None and not isinstance(after, str):
            raise self.fail("after", "must be the name of a variant")
        return Variant(
            name=name,
            path=self.path,
            title=self.string(data, "title", "", None),
            idea=self.string(data, "idea", "", None),
            after=after or None,
            dtypes=self.dtypes(data.get("dtype"), tunables, known),
            tunables=tunables,
            derived=derived,
            rules=self.rules(data.get("rules", []), known),
            launches=launches,
            workspace=workspace,
            tensor_maps=maps,
            text=self.text,
            body=self.body,
            model=self.model(data.get("model", {}), known),
        )

    def tunables(self, value: Any) -> dict[str, Tunable]:
        found: dict[str, Tunable] = {}
        for name, raw in self.table_of(value, "tunables").items():
            key = f"tunables.{name}"
            taken = name in SPEC_NAMES or name in PROBLEM_NAMES or name in GRID_NAMES
            if not _TUNABLE_NAME.fullmatch(name) or taken:
                raise self.fail(key, "a tunable is written in capitals and is no name of the lab")
            table = self.table(raw, key, {"default", "search", "doc", "choices", "min"})
            found[name] = self.tunable(name, key, table)
        return found

    def tunable(self, name: str, key: str, table: dict[str, Any]) -> Tunable:
        if "default" not in table or not isinstance(table["default"], int | str):
            raise self.fail(f"{key}.default", "a default is needed: a number, true/false or a word")
        choices = table.get("choices", [])
        if not isinstance(choices, list) or not all(isinstance(c, str) and c for c in choices):
            raise self.fail(f"{key}.choices", "must be a list of words")
        if isinstance(table["default"], str) and not choices:
            raise self.fail(f"{key}.default", "a word as default needs choices = [...]")
        minimum = table.get("min", 1)
        if isinstance(minimum, bool) or not isinstance(minimum, int) or minimum < 0:
            raise self.fail(f"{key}.min", "must be a whole number, 0 or above")
        tunable = Tunable(
            name=name,
            default=table["default"],
            doc=self.string(table, "doc", key, None),
            minimum=minimum,
            choices=tuple(choices),
        )
        self.value(tunable, table["default"], f"{key}.default")
        search = table.get("search", [])
        if not isinstance(search, list):
            raise self.fail(f"{key}.search", "must be a list of values")
        values = tuple(self.value(tunable, item, f"{key}.search") for item in search)
        return Tunable(
            name=name,
            default=tunable.default,
            doc=tunable.doc,
            minimum=minimum,
            choices=tunable.choices,
            search=values,
        )

    def value(self, tunable: Tunable, value: Any, key: str) -> TunableValue:
        """A value written in the file: of the tunable's own type, and in its range."""
        wanted = type(tunable.default)
        if type(value) is not wanted:
            raise self.fail(key, f"{value!r} is not of the default's kind, {wanted.__name__}")
        try:
            return tunable.parse(value)
        except UsageError as error:
            raise self.fail(key, error.message, error.hint) from None

    def dtypes(
        self, value: Any, tunables: Mapping[str, Tunable], known: set[str]
    ) -> dict[str, DTypeSupport]:
        if not isinstance(value, dict) or not value:
            raise self.fail("dtype", "at least one table [dtype.NAME] is needed",
                            f"names: {', '.join(DTYPES)}")  # fmt: skip
        found: dict[str, DTypeSupport] = {}
        for name, raw in value.items():
            key = f"dtype.{name}"
            if name not in DTYPES:
                raise self.fail(key, f"unknown dtype {name!r}", f"known: {', '.join(DTYPES)}")
            table = self.table(
                raw, key, {"layouts", "arch", "defaults", "outs", "fast_accumulation"}
            )
            layouts = table.get("layouts", ["nn"])
            if not isinstance(layouts, list) or not layouts or set(layouts) - set(LAYOUTS):
                raise self.fail(f"{key}.layouts", f"must be a list out of {', '.join(LAYOUTS)}")
            arch = self.string(table, "arch", key, "sm_70")
            try:
                arch_number(arch)
            except UsageError as error:
                raise self.fail(f"{key}.arch", error.message, error.hint) from None
            possible = [o.name for o in DTYPES[name].outs]
            outs = table.get("outs", possible)
            if not isinstance(outs, list) or not outs or set(outs) - set(possible):
                raise self.fail(f"{key}.outs", f"must be a list out of {', '.join(possible)}")
            defaults: dict[str, TunableValue] = {}
            for knob, raw_value in self.table_of(
                table.get("defaults", {}), f"{key}.defaults"
            ).items():
                if knob not in tunables:
                    raise self.fail(f"{key}.defaults", f"{knob} is no tunable of this variant")
                defaults[knob] = self.value(tunables[knob], raw_value, f"{key}.defaults")
            found[name] = DTypeSupport(
                dtype=DTYPES[name],
                layouts=tuple(layouts),
                arch=arch,
                outs=tuple(outs),
                defaults=defaults,
                fast_accumulation=self.expression(
                    table.get("fast_accumulation", "0"), f"{key}.fast_accumulation", known
                ),
            )
        return found

    def rules(self, value: Any, known: set[str]) -> tuple[Rule, ...]:
        if not isinstance(value, list):
            raise self.fail("rules", "must be written as [[rules]]")
        found = []
        for raw in value:
            table = self.table(raw, "rules", {"check", "say"})
            check = self.expression(table.get("check"), "rules", known)
            found.append(Rule(check=check, say=self.string(table, "say", "rules", None)))
        return tuple(found)

    def launches(
        self, data: Mapping[str, Any], name: str, known: set[str]
    ) -> tuple[LaunchStep, ...]:
        raw = data.get("launch")
        steps = raw if isinstance(raw, list) else [raw]
        if not raw or not all(isinstance(step, dict) for step in steps):
            raise self.fail("launch", "a table [launch] with grid and block is needed")
        shared = self.params(data.get("params", list(DEFAULT_PARAMS)), "params")
        allowed = {"entry", "params", "grid", "block", "cluster", "smem", "static_smem", "when"}
        read: Callable[[Any, str], Expression] = lambda text, key: self.expression(  # noqa: E731
            text, f"launch.{key}", known
        )
        found = []
        for step in steps:
            table = self.table(step, "launch", allowed)
            for needed in ("grid", "block"):
                if needed not in table:
                    raise self.fail("launch", f"{needed} is needed")
            entry = self.string(table, "entry", "launch", re.sub(r"\W", "_", name, flags=re.ASCII))
            if not _IDENTIFIER.fullmatch(entry):
                raise self.fail("launch.entry", f"{entry!r} is no name of a C function")
            params = table.get("params")
            found.append(
                LaunchStep(
                    entry=entry,
                    params=shared if params is None else self.params(params, "launch.params"),
                    grid=self.triple(table["grid"], "launch.grid", known | set(GRID_NAMES)),
                    block=self.triple(table["block"], "launch.block", known),
                    cluster=self.triple(table.get("cluster", [1]), "launch.cluster", known),
                    smem=read(table.get("smem", 0), "smem"),
                    static_smem=read(table.get("static_smem", 0), "static_smem"),
                    when=read(table.get("when", 1), "when"),
                )
            )
        if len({step.entry for step in found}) != len(found):
            raise self.fail("launch.entry", "two launches have the same entry")
        return tuple(found)

    def workspace(self, value: Any, known: set[str]) -> Workspace | None:
        if value is None:
            return None
        table = self.table(value, "workspace", {"bytes", "zero"})
        zero = table.get("zero", False)
        if not isinstance(zero, bool):
            raise self.fail("workspace.zero", "must be true or false")
        return Workspace(
            size_bytes=self.expression(table.get("bytes"), "workspace.bytes", known), zero=zero
        )

    def tensor_maps(self, value: Any, known: set[str]) -> dict[str, TensorMapDecl]:
        found: dict[str, TensorMapDecl] = {}
        for operand, raw in self.table_of(value, "tensor_maps").items():
            key = f"tensor_maps.{operand}"
            if operand not in ("a", "b", "c"):
                raise self.fail(key, "a tensor map is of a, b or c")
            in_workspace = {"source", "offset", "dims", "strides"}
            table = self.table(raw, key, {"box", "swizzle"} | in_workspace)
            box = table.get("box")
            if not isinstance(box, list) or not 1 <= len(box) <= 2:
                raise self.fail(f"{key}.box", "must be [inner, outer], in elements")
            found[operand] = TensorMapDecl(
                operand=operand,
                box=tuple(self.expression(item, f"{key}.box", known) for item in box),
                swizzle=self.word(table, "swizzle", key, "none", SWIZZLES, known),
                source=self.word(table, "source", key, operand, (operand, "workspace"), known),
                workspace=self.workspace_map(table, key, known)
                if in_workspace & set(table)
                else None,
            )
        return found

    def workspace_map(self, table: Mapping[str, Any], key: str, known: set[str]) -> WorkspaceMap:
        lists: dict[str, tuple[Expression, ...]] = {}
        for name, count in (("dims", 3), ("strides", 2)):
            items = table.get(name)
            if not isinstance(items, list) or len(items) != count:
                raise self.fail(f"{key}.{name}", f"a map over the workspace needs {count} {name}")
            lists[name] = tuple(self.expression(i, f"{key}.{name}", known) for i in items)
        offset = self.expression(table.get("offset", 0), f"{key}.offset", known)
        return WorkspaceMap(offset=offset, dims=lists["dims"], strides=lists["strides"])

    def model(self, value: Any, known: set[str]) -> dict[str, Expression]:
        found: dict[str, Expression] = {}
        for name, raw in self.table(value, "model", set(MODEL_KEYS)).items():
            key = f"model.{name}"
            if name in MODEL_OPERANDS:
                for inner, fact in self.table(raw, key, set(MODEL_OPERAND_KEYS)).items():
                    found[f"{name}.{inner}"] = self.fact(fact, f"{key}.{inner}", known)
            elif isinstance(raw, str) and raw in MODEL_WORDS.get(name, ()):
                found[name] = self.expression(f"'{raw}'", key, known)
            else:
                found[name] = self.fact(raw, key, known)
        return found

    def fact(self, value: Any, key: str, known: set[str]) -> Expression:
        if isinstance(value, bool):
            value = str(value).lower()
        return self.expression(value, key, known)

    def check_declared(
        self,
        launches: tuple[LaunchStep, ...],
        maps: Mapping[str, TensorMapDecl],
        workspace: Workspace | None,
    ) -> None:
        """A parameter that the host must prepare needs its table."""
        for step in launches:
            for operand in ("a", "b", "c"):
                if f"tma_{operand}" in step.params and operand not in maps:
                    raise self.fail("params", f"tma_{operand} needs [tensor_maps.{operand}]")
            if "workspace" in step.params and workspace is None:
                raise self.fail("params", "workspace needs [workspace] bytes = ...")
        for operand, decl in maps.items():
            if decl.workspace is not None and workspace is None:
                raise self.fail(f"tensor_maps.{operand}", "workspace needs [workspace] bytes = ...")
