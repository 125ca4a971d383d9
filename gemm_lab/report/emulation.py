"""What the emulator found in one launch, or in many small problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gemm_lab.core.kernel import format_config
from gemm_lab.report.document import Block, Document, Fact, Facts, Paragraph
from gemm_lab.report.numbers import bytes_text, count_text, number
from gemm_lab.report.run import counters_blocks

__all__ = ["check_document", "emulation_document"]

MAX_RACES = 10


def emulation_document(data: Mapping[str, Any]) -> Document:
    """From the data that `emulate --json` prints: kernel, verdicts, races, output, counters."""
    facts = [
        Fact(name="kernel", text=f"{data['entry']} of {data['file']}", style="strong"),
        Fact(
            name="ran on",
            text=f"the emulator: NumPy executes the PTX for {data['arch']}; "
            f"{data['blocks_run']:,} blocks, {data['instructions_executed']:,} instructions",
        ),
        *_resources(data["resources"]),
        *_arrays(data["arrays"]),
    ]
    for finding in data["expectations"]:
        facts.extend(_finding(finding))
    if not data["races"]:
        facts.append(Fact(name="races", text="none found", style="quiet"))
    document: list[Block] = [Facts(facts=tuple(facts))]
    if data["races"]:
        document.append(_races(data["races"]))
    if data["printf"]:
        document.append(Paragraph(text="printf:\n" + "".join(data["printf"])))
    if data["counters"]:
        document.extend(counters_blocks(data["counters"]))
    return tuple(document)


def _resources(found: Mapping[str, int] | None) -> Iterator[Fact]:
    if found is not None:
        spills = found["spill_store_bytes"] + found["spill_load_bytes"]
        text = f"{found['registers_per_thread']} registers a thread, "
        text += f"{bytes_text(found['static_smem_bytes'])} static shared memory, "
        text += f"spills of {spills} bytes a thread" if spills else "no spills"
        yield Fact(name="resources", text=text)


def _arrays(found: Mapping[str, Any]) -> Iterator[Fact]:
    if found:
        text = ", ".join(f"{n} {a['dtype']}{a['shape']}" for n, a in found.items())
        yield Fact(name="arrays", text=text)


def _finding(finding: Mapping[str, Any]) -> Iterator[Fact]:
    if finding["ok"]:
        yield Fact(name=finding["text"], text="RIGHT", style="good")
    else:
        yield Fact(
            name=finding["text"],
            text=f"WRONG in {finding['wrong_count']:,} of {finding['size']:,} elements",
            style="bad",
        )
    worst = finding["worst"]
    if worst is not None:
        place = ", ".join(map(str, worst["index"]))
        yield Fact(
            name="worst element",
            text=f"[{place}] = {number(worst['got'])}, expected {number(worst['expected'])}, "
            f"allowed error {number(worst['bound'])}",
        )
    yield Fact(name="tolerance", text=finding["tolerance"])


def _races(races: list[str]) -> Facts:
    facts = [Fact(name="race", text=race, style="bad") for race in races[:MAX_RACES]]
    if len(races) > MAX_RACES:
        facts.append(Fact(name="...", text=f"{len(races) - MAX_RACES} more in --json"))
    return Facts(facts=tuple(facts))


def check_document(data: Mapping[str, Any]) -> Document:
    """From a CheckReport as plain data: what ran, what was found, what was left out."""
    config = format_config(data["config"])
    findings = data["findings"]
    kinds = [finding["kind"] for finding in findings]
    counts = ", ".join(f"{kind}: {kinds.count(kind)}" for kind in dict.fromkeys(kinds))
    facts = [
        Fact(name="kernel", text=f"{data['variant']} {config}".rstrip(), style="strong"),
        Fact(
            name="ran on",
            text=f"the emulator, PTX for {data['arch']}; races watched on every block",
        ),
        Fact(name="cases", text=f"{count_text(len(data['cases']), 'problem')}, each verified"),
        *(Fact(name="left out", text=text, style="quiet") for text in data["skipped"]),
        Fact(name="verdict", text=counts, style="bad")
        if findings
        else Fact(name="verdict", text="nothing found", style="good"),
    ]
    document: list[Block] = [Facts(facts=tuple(facts))]
    for finding in findings[:MAX_RACES]:
        text = f"{finding['kind']} at {finding['case']}: {finding['text']}"
        document.append(Paragraph(text=text, style="bad"))
    if len(findings) > MAX_RACES:
        document.append(Paragraph(text=f"{len(findings) - MAX_RACES} more in --json"))
    return tuple(document)
