"""All variants that there are: ours, and those of the user's folders."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gemm_lab.errors import UsageError, VariantError
from gemm_lab.variants.frontmatter import SUFFIX, load_variant
from gemm_lab.variants.paths import template_root
from gemm_lab.variants.variant import Variant

__all__ = ["Catalogue", "names_file"]


def names_file(name: str | Path) -> bool:
    """Whether this is the path of a variant's file, and not a name of the catalogue."""
    return isinstance(name, Path) or name.endswith(SUFFIX) or "/" in name


class Catalogue:
    """Variants by name, read when first asked for.

    Args:
        folders: the user's folders, after the lab's own.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._paths: dict[str, Path] = {}
        self._loaded: dict[Path, Variant] = {}
        self._written: dict[Path, tuple[int, int]] = {}
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

    def ladder(self) -> list[Variant]:
        """Every variant, each after the rung that it improves on.

        VariantError when `after` names nobody or runs in a circle.
        """
        variants = {name: self.get(name) for name in self.names()}
        for variant in variants.values():
            self._check_after(variant, variants)
        found: list[Variant] = []

        def add(after: str | None) -> Iterator[Variant]:
            for variant in variants.values():
                if variant.after == after:
                    yield variant
                    yield from add(variant.name)

        found.extend(add(None))
        return found

    def _check_after(self, variant: Variant, variants: dict[str, Variant]) -> None:
        seen = [variant.name]
        current = variant
        while current.after is not None:
            if current.after not in variants:
                raise VariantError(
                    f"after = {current.after!r} names no variant", file=str(current.path),
                    key="after", hint=f"known: {', '.join(variants)}",
                )  # fmt: skip
            if current.after in seen:
                circle = " -> ".join([*seen, current.after])
                raise VariantError(
                    f"after runs in a circle: {circle}", file=str(current.path), key="after",
                    hint="the first rung has no after",
                )  # fmt: skip
            current = variants[current.after]
            seen.append(current.name)

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
