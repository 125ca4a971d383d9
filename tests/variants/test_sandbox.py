"""Files of strangers: no template takes for ever or fills the memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
from jinja2 import StrictUndefined

from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.kernel import KernelSpec
from gemm_lab.core.problem import Alignment
from gemm_lab.errors import VariantError
from gemm_lab.variants import load_variant, render
from gemm_lab.variants.sandbox import BoundedEnvironment

HEAD = """/*---
title = "t"
idea = "i"
[dtype.fp32]
[launch]
grid = [1]
block = [32]
---*/
"""
MANY = "range(99999)"
SPENT = "steps and characters"
LONG = "longer than|characters"


def rounds(turn: str, start: str = "'ab'") -> str:
    """Sixty turns of something that doubles."""
    body = f"<% for i in range(60) %>{turn}<% endfor %>"
    return f"<% set n = namespace(x={start}) %>{body}"


def loops(inner: str, before: str = "") -> str:
    """Many turns of something."""
    return f"{before}<% for i in {MANY} %>{inner}<% endfor %>"


HOSTILE = {
    "a range": ("<% for i in range(10**9) %>x<% endfor %>", "Range too big"),
    "nested loops": (loops(loops("x")), SPENT),
    "nested loops that put out nothing": (loops(loops("<% set a = 1 %>")), SPENT),
    "items passed over": (loops(f"<% for j in {MANY} if j < 0 %>x<% endfor %>"), SPENT),
    "fixed text": (loops("x" * 9999), SPENT),
    "long values": (loops("${x}", "<% set x = 'y' * 1000000 %>"), SPENT),
    "a macro that calls itself twice": (
        "<% macro f(n) %><% if n %>${f(n - 1)}${f(n - 1)}<% endif %><% endmacro %>${f(60)}",
        SPENT,
    ),
    "a loop that calls itself twice": (
        "<% for x in [[]] recursive %>${loop([1, 2]) if loop.depth < 90 else ''}<% endfor %>",
        SPENT,
    ),
    "long sums": (loops("${r | sum}", f"<% set r = {MANY} | list %>"), SPENT),
    "long lists": (loops(f"${{{MANY} | map('string') | list | length}}"), SPENT),
    "a long search": (loops("${100000 in r}", f"<% set r = {MANY} | list %>"), SPENT),
    "an include of itself": ("<% include 'mine.cu.j2' %>" * 2, "RecursionError"),
    "a block of itself": ("<% block a %>${self.a()}${self.a()}<% endblock %>", "RecursionError"),
    "a width": ("${'%1000000000d' % 1}", "a width in"),
    "a precision": ("${'%.1000000000f' % 1}", "a width in"),
    "a width from outside": ("${'%*d' % (1000000000, 1)}", "a width in"),
    "a format": ("${'{:1000000000}'.format(1)}", "format"),
    "a filter with a width": ("${'x' | center(1000000000)}", "No filter named 'center'"),
    "a filter that formats": ("${'%1000000000d' | format(1)}", "No filter named 'format'"),
    "text to fill a line": ("${'x'.ljust(1000000000)}", "ljust"),
    "texts by number": ("${'x' * 10**9}", LONG),
    "numbers by text": ("${10**9 * 'x'}", LONG),
    "lists by number": ("${[1] * 10**9}", LONG),
    "a replacement": ("${('x' * 99999).replace('x', 'y' * 99999)}", "replace"),
    "a join": ("${('x' * 99999) | join('y' * 99999)}", LONG),
    "lipsum": ("${lipsum(n=1000000000)}", "undefined"),
    "a power": ("${10 ** 10 ** 10}", "bits"),
    "squares": (rounds("<% set n.x = n.x * n.x %>", "3"), "bits"),
    "doubled by ~": (rounds("<% set n.x = n.x ~ n.x %>"), LONG),
    "doubled by +": (rounds("<% set n.x = n.x + n.x %>"), LONG),
    "doubled lists": (rounds("<% set n.x = n.x + n.x %>", "[1]"), LONG),
    "doubled by set": (rounds("<% set n.x %>${n.x}${n.x}<% endset %>"), f"{LONG}|{SPENT}"),
    "a list that grows": (rounds("${n.x.extend(n.x)}", "[1]"), "unsafe"),
}


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def rendered(path: Path, body: str) -> str:
    path.write_text(f"{HEAD}{body}\n")
    arithmetic = dtype_named("fp32")
    variant = load_variant(path)
    spec = KernelSpec(
        variant=variant.name, config={}, dtype=arithmetic, out=arithmetic.default_out,
        layout="nn", alignment=Alignment(), arch="sm_80",
    )  # fmt: skip
    return render(variant, spec).source


@pytest.mark.parametrize("name", HOSTILE)
def test_it_ends_soon_and_small(name: str, tmp_path: Path) -> None:
    body, said = HOSTILE[name]
    path = tmp_path / "mine.cu.j2"
    start, before = time.process_time(), peak_bytes()
    with pytest.raises(VariantError, match=said) as caught:
        rendered(path, body)
    assert time.process_time() - start < 10
    assert peak_bytes() - before < 2**28
    assert str(path) in str(caught.value)


def test_what_templates_do_is_as_before(tmp_path: Path) -> None:
    body = (
        "<% for i in range(3) if i != 1 %>${i}, <% endfor %>"
        "${'a' ~ 1 ~ 'b'} ${'.L2::%dB' % 128} ${[1, 2, 3] | join('+')} ${[4, 9] | min}"
        " ${'ab'.upper()} ${2 ** 10} ${'-' * 3} ${1 if 1 < 2 <= 2 else 0} ${3 in [1, 2, 3]}"
        "<% macro twice(x) %>${x}${x}<% endmacro %> ${twice('z')} ${7 // 2} ${7 % 4}"
    )
    assert "0, 2, a1b .L2::128B 1+2+3 4 AB 1024 --- 1 True zz 3 3" in rendered(
        tmp_path / "mine.cu.j2", body
    )


def test_what_is_no_variant_for_its_size(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu.j2"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(VariantError, match="has 1,099,511,627,776 bytes"):
        load_variant(path)


def test_nothing_is_counted_while_a_template_is_compiled() -> None:
    environment = BoundedEnvironment(undefined=StrictUndefined)
    assert environment.from_string("{{ 'a' ~ 'b' }}{{ [1, 2] | sum }}").render() == "ab3"
