"""One kernel out of a .cu or .ptx file, compiled and loaded for the emulator."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemm_lab import jit
from gemm_lab.core.kernel import RenderedKernel, Resources
from gemm_lab.emulator import EmulatorFault, LoadedModule, load_ptx
from gemm_lab.errors import UsageError
from gemm_lab.jit.options import program_name
from gemm_lab.lab.cuda_text import base_name, device_text

__all__ = ["KernelFile", "load_kernel_file"]

DEFAULT_ARCH = "sm_80"
# Functions without __device__ (constexpr ones, methods) may be called from a kernel.
_OPTIONS = ("-default-device",)
_LOCAL_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"')


@dataclass(frozen=True, kw_only=True)
class KernelFile:
    """A module and the entry that was asked for; `file` is the path as the user gave it.

    `virtual` is what the line table calls that file.
    """

    module: LoadedModule
    entry: str
    file: str
    virtual: str | None = None
    resources: Resources | None = None

    def in_users_file(self, fault: EmulatorFault) -> EmulatorFault:
        """The same fault, with the path as the user gave it."""
        if self.virtual is None:
            return fault
        fault.message = fault.message.replace(self.virtual, self.file)
        fault.args = (fault.message,)
        if fault.where is not None and fault.where.file == self.virtual:
            fault.where = replace(fault.where, file=self.file)
        return fault


def load_kernel_file(
    source: str | Path,
    entry: str | None,
    arch: str | None,
    defines: Sequence[str],
    cache: jit.Cache | None,
) -> KernelFile:
    """Read, compile and check one kernel of a file (or of a text) for the emulator.

    UsageError: no such file or kernel. CompileError: from NVRTC. PtxError: unknown instructions.
    """
    text, path = _read(source)
    if re.search(r"^\s*\.version\s+\d", text, re.MULTILINE):
        file = "the PTX" if path is None else str(path)
        module = load_ptx(text, arch=arch)
        return KernelFile(module=module, entry=_ptx_entry(module, entry, file), file=file)
    for word in defines:
        if not re.match(r"[A-Za-z_]\w*(\(|=|$)", word):
            raise UsageError(f"macro {word!r} has no name", hint="NAME or NAME=VALUE")
    name = "kernel" if path is None else path.name.removesuffix(".cu")
    whole = text if path is None else _with_local_includes(text, path, {path.resolve()})
    wanted = _cuda_entry(whole, entry, name)
    rendered = RenderedKernel(
        name=name,
        source=device_text(whole, wanted).source,
        entries=(wanted,),
        arch=arch or DEFAULT_ARCH,
        options=(*_OPTIONS, *(f"-D{word}" for word in defines)),
        name_expressions=(wanted,),
    )
    compiled = jit.compile_kernel(rendered, cache=cache)
    lowered = compiled.lowered_names[wanted]
    module = load_ptx(compiled.ptx, source=text if whole == text else None, arch=arch)
    return KernelFile(
        module=module,
        entry=lowered,
        file=f"{name}.cu" if path is None else str(path),
        virtual=program_name(name),
        resources=compiled.resources.get(lowered),
    )


def _read(source: str | Path) -> tuple[str, Path | None]:
    """Text, and the file that it came from."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source, None
    path = Path(source)
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace"), path
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="give a .cu or .ptx file, or its text",
        ) from None


def _with_local_includes(text: str, path: Path, seen: set[Path]) -> str:
    """Files of the user that are included with quotes, in the place of their #include."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = _LOCAL_INCLUDE.match(line)
        inner = path.parent / found[1] if found else None
        if found is None or inner is None or not inner.is_file():
            continue
        if inner.resolve() in seen or len(seen) > 100:
            lines[at] = ""
            continue
        seen.add(inner.resolve())
        body = _with_local_includes(
            inner.read_text(encoding="utf-8-sig", errors="replace"), inner, seen
        )
        body = re.sub(r"^[ \t]*#[ \t]*pragma[ \t]+once", "", body, flags=re.MULTILINE)
        lines[at] = f'#line 1 "{inner}"\n{body}\n#line {at + 2} "{path}"'
    return "\n".join(lines)


def _cuda_entry(text: str, entry: str | None, name: str) -> str:
    """The kernel as C++ names it from outside."""
    found = device_text(text, entry)
    known = ", ".join(found.kernels) or "none"
    if entry is None:
        if len(found.kernels) != 1:
            raise UsageError(
                f"{name}.cu has {len(found.kernels)} kernels",
                hint=f"name one with --entry: {known}",
            )
        entry = next(iter(found.kernels))
    plain = base_name(entry)
    if plain not in found.kernels:
        if re.search(rf"\b{re.escape(plain)}\b", text):
            return entry  # perhaps a macro spells it out
        near = difflib.get_close_matches(plain, found.kernels, 1)
        hint = f"did you mean {near[0]}?" if near else f"kernels: {known}"
        raise UsageError(f"{name}.cu has no kernel {plain!r}", hint=hint)
    if plain in found.templates and "<" not in entry:
        raise UsageError(
            f"{plain} is a template", hint=f"give its arguments, as in --entry '{plain}<32>'"
        )
    if "::" in entry.partition("<")[0]:
        return entry
    return found.kernels[plain] + entry[len(plain) :]


def _ptx_entry(module: LoadedModule, entry: str | None, file: str) -> str:
    """An entry by its name in the PTX, or by the plain name behind it if only one has that."""
    names = list(module.entries)
    if entry is None and len(names) == 1:
        return names[0]
    if entry in names:
        return str(entry)
    plain = [n for n in names if entry is not None and _demangled(n) == entry]
    if len(plain) == 1:
        return plain[0]
    raise UsageError(
        f"{file} has {len(names)} kernels, name one"
        if entry is None
        else f"{file} has no kernel {entry!r}",
        hint=f"--entry with one of: {', '.join(names) or 'none'}",
    )


def _demangled(name: str) -> str:
    """The last plain word of a mangled name: k of _Z1kPf and of _ZN1x1kEPf."""
    rest = re.match(r"_ZN?", name)
    if rest is None:
        return name
    at, word = rest.end(), name
    while found := re.match(r"\d+", name[at:]):
        start = at + found.end()
        at = start + int(found[0])
        word = name[start:at]
    return word
