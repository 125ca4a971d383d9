"""All variants that there are: ours, and those of the user's folders."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemm_lab.errors import GemmLabError, UsageError, VariantError
from gemm_lab.variants.frontmatter import SUFFIX, load_variant
from gemm_lab.variants.paths import template_root
from gemm_lab.variants.variant import Variant

__all__ = ["Catalogue", "Survey", "names_file"]

_log = logging.getLogger("gemm_lab")


def names_file(name: str | Path) -> bool:
    """Whether this is the path of a variant's file, and not a name of the catalogue."""
    return isinstance(name, Path) or name.endswith(SUFFIX) or "/" in name


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The ladder of what can be used, and what is wrong with the rest, by name."""

    ladder: tuple[Variant, ...]
    broken: Mapping[str, GemmLabError]


class Catalogue:
    """Variants by name, read when first asked for.

    Args:
        folders: the user's folders, after the lab's own.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._paths: dict[str, Path] = {}
        self._loaded: dict[Path, Variant] = {}
        self._written: dict[Path, tuple[int, int]] = {}
        self._told: set[str] = set()
        for folder in (template_root(), *folders):
            if not folder.is_dir():
                raise UsageError(f"{folder} is no folder", hint="--templates takes a folder")
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                name = path.name.removesuffix(SUFFIX)
                known = self._paths.get(name)
                if known is not None and os.path.realpath(known) != os.path.realpath(path):
                    raise VariantError(
                        f"there is already a variant {name}: {known}",
                        file=str(path),
                        hint="rename the file",
                    )
                self._paths[name] = path

    def names(self) -> list[str]:
        """Names without reading the files, alphabetically."""
        return sorted(self._paths)

    def get(self, name: str | Path) -> Variant:
        """A variant by name, or by the path of its file; UsageError with near names.

        A file that is named by its path is read again when it was written in between.
        """
        if not isinstance(name, str | Path):
            raise UsageError(
                f"{name!r} is no variant", hint="a variant is a name, or the path of its file"
            )
        if names_file(name):
            path = Path(name)
            if not path.name.endswith(SUFFIX):
                raise UsageError(f"{name} is no variant file", hint=f"its name ends in {SUFFIX}")
            return self._load_anew(path)
        name = str(name)
        if name not in self._paths:
            near = difflib.get_close_matches(name, self._paths, 1)
            raise UsageError(
                f"unknown variant {name!r}",
                hint=f"did you mean {near[0]}?"
                if near
                else f"known: {', '.join(self.names())}; or the path of a {SUFFIX} file",
            )
        return self._load(self._paths[name])

    def survey(self) -> Survey:
        """Every variant after the rung that it improves on; one broken file hides no other."""
        sound: dict[str, Variant] = {}
        broken: dict[str, GemmLabError] = {}
        for name in self.names():
            try:
                sound[name] = self.get(name)
            except GemmLabError as error:
                broken[name] = error
        for variant in list(sound.values()):
            lost = _lost(variant, sound, broken)
            if lost is not None:
                broken[variant.name] = lost
        sound = {name: v for name, v in sound.items() if name not in broken}
        ladder: list[Variant] = []

        def add(after: str | None) -> None:
            for variant in sound.values():
                if variant.after == after:
                    ladder.append(variant)
                    add(variant.name)

        add(None)
        return Survey(ladder=tuple(ladder), broken=broken)

    def ladder(self) -> list[Variant]:
        """Every variant that can be used, each after the rung that it improves on.

        Of each broken file a warning is logged, once.
        """
        found = self.survey()
        for name, error in found.broken.items():
            if name not in self._told:
                self._told.add(name)
                _log.warning("%s is left out: %s", name, error.message)
        return list(found.ladder)

    def _load_anew(self, path: Path) -> Variant:
        try:
            found = path.stat()
            written = (found.st_mtime_ns, found.st_size)
        except OSError:  # the reader tells what is wrong with it
            return load_variant(path)
        if self._written.get(path) != written:
            self._loaded.pop(path, None)
            self._written[path] = written
        return self._load(path)

    def _load(self, path: Path) -> Variant:
        if path not in self._loaded:
            self._loaded[path] = load_variant(path)
        return self._loaded[path]


def _lost(
    variant: Variant, sound: Mapping[str, Variant], broken: Mapping[str, GemmLabError]
) -> VariantError | None:
    """Why a variant hangs on no first rung, if so."""
    seen = [variant.name]
    current = variant
    while current.after is not None:
        after, file = current.after, str(current.path)
        hint = "the first rung has no after; `gemm-lab list` shows the names"
        if after in seen:
            circle = " -> ".join([*seen, after])
            return VariantError(
                f"after runs in a circle: {circle}", file=file, key="after", hint=hint
            )
        if after not in sound:
            why = "a variant that cannot be read" if after in broken else "no variant"
            message = f"after = {after!r} names {why}"
            return VariantError(message, file=file, key="after", hint=hint)
        current = sound[after]
        seen.append(after)
    return None
