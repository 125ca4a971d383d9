"""The table of real cards as TOML: the shipped one, and a user's additions to it.

`devices.toml` in this package is the table. A user's file has the same form: a new key adds a
card, a known key overrides single values of it, and `[devices.KEY.measured]` holds the ceilings
that `gemm-lab devices --measure` found.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from gemm_lab.core.arch import arch_limits
from gemm_lab.errors import UsageError
from gemm_lab.model.devices import Device, MeasuredCeilings

__all__ = ["load_devices", "render_measured"]

_TENSOR_KEYS = {"tf32", "fp16", "bf16", "fp8", "int8"}


def load_devices(user_file: Path | None = None) -> dict[str, Device]:
    """All cards by key, the shipped table first, then what `user_file` adds or overrides.

    A missing user file is no error; anything wrong inside one is a UsageError that names the
    file and the key.
    """
    shipped = files("gemm_lab.model").joinpath("devices.toml").read_text(encoding="utf-8")
    tables = _tables(shipped, "devices.toml")
    origin = dict.fromkeys(tables, "devices.toml")
    if user_file is not None and user_file.is_file():
        try:
            text = user_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{user_file}: cannot be read: {error}") from error
        for key, table in _tables(text, str(user_file)).items():
            tables[key] = _merged(tables.get(key, {}), table)
            origin[key] = str(user_file)
    return {key: _device(key, table, origin[key]) for key, table in tables.items()}


def render_measured(key: str, measured: MeasuredCeilings) -> str:
    """Measured ceilings as TOML, for a user's file that `load_devices` reads."""
    lines = [f"[devices.{key}.measured]"]
    for f in fields(measured):
        value = getattr(measured, f.name)
        if f.name == "tensor_tflops" or value is None:
            continue
        lines.append(f"{f.name} = {_toml(value)}")
    if measured.tensor_tflops:
        lines.append(f"[devices.{key}.measured.tensor_tflops]")
        lines += [f"{name} = {_toml(rate)}" for name, rate in measured.tensor_tflops.items()]
    return "\n".join(lines) + "\n"


def _toml(value: float | str) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'"{escaped}"'
    return repr(value)


def _tables(text: str, file: str) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from error
    unknown = [key for key in document if key != "devices"]
    if unknown:
        raise UsageError(f"{file}: unknown key {unknown[0]!r}", hint="tables begin [devices.KEY]")
    tables = document.get("devices", {})
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise UsageError(f"{file}: devices: must hold one table a card", hint="[devices.my_card]")
    return tables


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            result[key] = _merged(known, value)
        else:
            result[key] = value
    return result


_TEXTS = {"name", "arch", "source"}
_WHOLES = {"sm_count", "dram_bytes", "l2_bytes"}
_NUMBERS = {
    "boost_clock_mhz", "dram_gb_s", "l2_gb_s", "fp32_tflops", "power_w",
    "dram_latency_cycles", "l2_latency_cycles", "smem_latency_cycles",
}  # fmt: skip
_OPTIONAL = {
    "aliases", "l2_gb_s", "power_w", "dram_latency_cycles", "l2_latency_cycles",
    "smem_latency_cycles", "tensor_tflops", "measured",
}  # fmt: skip
_MEASURED_NUMBERS = {
    "sm_clock_mhz", "dram_gb_s", "l2_gb_s", "smem_gb_s", "fp32_tflops",
    "dram_latency_cycles", "l2_latency_cycles", "smem_latency_cycles",
}  # fmt: skip


def _device(key: str, table: Mapping[str, Any], file: str) -> Device:
    where = f"{file}: devices.{key}"
    if not re.fullmatch(r"[a-z0-9_]+", key):
        raise UsageError(f"{where}: a key is lower case letters, digits and _")
    allowed = _TEXTS | _WHOLES | _NUMBERS | _OPTIONAL
    _refuse_unknown(table, allowed, where)
    missing = sorted(allowed - _OPTIONAL - set(table))
    if missing:
        raise UsageError(f"{where}.{missing[0]}: is missing", hint=f"needed: {', '.join(missing)}")
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name in _TEXTS:
            values[name] = _text(value, f"{where}.{name}")
        elif name in _WHOLES:
            values[name] = _whole(value, f"{where}.{name}")
        elif name in _NUMBERS:
            values[name] = _number(value, f"{where}.{name}")
    try:
        arch_limits(values["arch"])
    except UsageError as error:
        raise UsageError(f"{where}.arch: {error.message}", hint=error.hint) from error
    aliases = table.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(a, str) for a in aliases):
        raise UsageError(f"{where}.aliases: must be a list of names")
    values["aliases"] = tuple(aliases)
    values["tensor_tflops"] = _tensor(table.get("tensor_tflops", {}), f"{where}.tensor_tflops")
    if "measured" in table:
        values["measured"] = _measured(table["measured"], f"{where}.measured")
    return Device(key=key, **values)


def _measured(table: Any, where: str) -> MeasuredCeilings:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: must be a table")
    _refuse_unknown(table, _MEASURED_NUMBERS | {"tensor_tflops", "source"}, where)
    values: dict[str, Any] = {
        name: _number(table[name], f"{where}.{name}") for name in _MEASURED_NUMBERS & set(table)
    }
    if "source" in table:
        values["source"] = _text(table["source"], f"{where}.source")
    tensor = _tensor(table.get("tensor_tflops", {}), f"{where}.tensor_tflops")
    return MeasuredCeilings(tensor_tflops=tensor, **values)


def _tensor(table: Any, where: str) -> dict[str, float]:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: must be a table of peaks")
    _refuse_unknown(table, _TENSOR_KEYS, where)
    return {name: _number(rate, f"{where}.{name}") for name, rate in table.items()}


def _refuse_unknown(table: Mapping[str, Any], allowed: set[str], where: str) -> None:
    for name in table:
        if name not in allowed:
            near = get_close_matches(name, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(allowed))}"
            raise UsageError(f"{where}.{name}: unknown key", hint=hint)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: must be a text, not {value!r}")
    return value


def _number(value: Any, where: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 < value < float("inf"):
        raise UsageError(f"{where}: must be a number above 0, not {value!r}")
    return float(value)


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{where}: must be a whole number above 0, not {value!r}")
    return value
