"""What the card counts beside what the emulator and the model say, of the very same code.

    python benchmarks/hardware.py prepare FOLDER       # anywhere: compile for sm_90, no GPU needed
    python benchmarks/hardware.py launch FOLDER --size 1024 [--dump C.npz]      # on the card
    ncu --csv --clock-control none --metrics "$(python benchmarks/hardware.py metrics)" \\
        python benchmarks/hardware.py launch FOLDER --size 1024 > ncu_1024.csv  # on the card
    python benchmarks/hardware.py record FOLDER ncu_1024.csv ncu_4096.csv C.npz -o RESULT.json

`record` joins the card's figures with the hash of the PTX that ran; tests/emulator holds the
emulator to them, and tests/model the model.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy

from gemm_lab import jit
from gemm_lab.core.dtypes import dtype
from gemm_lab.core.kernel import CompiledKernel, RenderedKernel, Resources
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.lab.execute import Executor
from gemm_lab.lab.trial import Trial, make_trial
from gemm_lab.variants import Catalogue, Facts, Variant, config_of, make_spec, render

ARCH = "sm_90"
_LDGSTS = "sm__sass_l1tex_t_{}_pipe_lsu_mem_global_op_ldgsts_cache_{}.sum"
METRICS = {
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    # Copies by cp.async; the two above count them among the loads.
    "async_copy_requests_ca": _LDGSTS.format("requests", "access"),
    "async_copy_requests_cg": _LDGSTS.format("requests", "bypass"),
    "async_copy_sectors_ca": _LDGSTS.format("sectors", "access"),
    "async_copy_sectors_cg": _LDGSTS.format("sectors", "bypass"),
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load_instructions": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared_store_instructions": "smsp__sass_inst_executed_op_shared_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "ffma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "l2_sectors_from_l1": "lts__t_sectors_srcunit_tex.sum",
    "dram_bytes": "dram__bytes.sum",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex_percent": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "duration_ns": "gpu__time_duration.sum",
    "warps_active_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}


UNITS = {
    "msecond": 1e6, "ms": 1e6, "usecond": 1e3, "us": 1e3, "second": 1e9, "s": 1e9,
    "Gbyte": 1e9, "Mbyte": 1e6, "Kbyte": 1e3,
}  # fmt: skip


def problem_of(size: int) -> GemmProblem:
    """A square fp32 product."""
    fp32 = dtype("fp32")
    return GemmProblem(shape=Shape(m=size, n=size, k=size), dtype=fp32, out=fp32.default_out)


def cuda_core_rungs() -> list[Variant]:
    """Every variant that multiplies fp32 on CUDA cores of any card since sm_80."""
    return [
        v for v in Catalogue().ladder() if "fp32" in v.dtypes and v.dtypes["fp32"].arch <= "sm_80"
    ]


def spec_of(variant: Variant, size: int) -> Any:
    """The specification at the defaults, for packed arrays of that size."""
    problem = problem_of(size)
    return make_spec(
        variant,
        Facts(
            dtype=problem.dtype,
            out=problem.out,
            layout=problem.layout,
            alignment=problem.alignment(problem.packed_strides()),
            arch=ARCH,
        ),
        config_of(variant, "fp32", {}),
    )


def prepare(folder: Path) -> None:
    """Compile each rung here and lay cubin, PTX and facts in a folder that can travel."""
    folder.mkdir(parents=True, exist_ok=True)
    for variant in cuda_core_rungs():
        compiled = jit.compile_kernel(render(variant, spec_of(variant, 1024)))
        shutil.copy(compiled.cubin_path, folder / f"{variant.name}.cubin")
        (folder / f"{variant.name}.ptx").write_text(compiled.ptx, encoding="utf-8")
        facts = {
            "source": compiled.rendered.source,
            "entries": compiled.rendered.entries,
            "resources": {
                name: {
                    "registers_per_thread": r.registers_per_thread,
                    "static_smem_bytes": r.static_smem_bytes,
                }
                for name, r in compiled.resources.items()
            },
            "nvrtc": compiled.nvrtc_version,
            "ptx_hash": compiled.ptx_hash,
        }
        (folder / f"{variant.name}.json").write_text(json.dumps(facts), encoding="utf-8")
        print(variant.name, compiled.nvrtc_version, compiled.ptx_hash[:16])


def carried(folder: Path, name: str) -> CompiledKernel:
    """A kernel that `prepare` laid down."""
    facts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return CompiledKernel(
        rendered=RenderedKernel(
            name=name, source=facts["source"], entries=tuple(facts["entries"]), arch=ARCH
        ),
        cubin_path=(folder / f"{name}.cubin").resolve(),
        ptx=(folder / f"{name}.ptx").read_text(encoding="utf-8"),
        log="",
        resources={
            entry: Resources(spill_store_bytes=0, spill_load_bytes=0, **r)
            for entry, r in facts["resources"].items()
        },
        options=(),
        nvrtc_version=facts["nvrtc"],
        header_set="",
        cache_hit=True,
    )


def launched(backend: Any, compiled: CompiledKernel, variant: Variant, size: int) -> Trial:
    """One launch of a compiled rung with seeded data; the caller frees the trial."""
    problem = problem_of(size)
    executor = Executor(
        backend=backend,
        loaded=backend.load(compiled),
        variant=variant,
        spec=spec_of(variant, size),
        compiled=compiled,
        problem=problem,
        strides=problem.packed_strides(),
    )
    trial = make_trial(backend, executor, problem, seed=0)
    trial.reset_c()
    trial.launch()
    return trial


def execute(backend: Any, folder: Path, variant: Variant, size: int) -> Any:
    """One launch of a rung that was carried here; C as an array."""
    trial = launched(backend, carried(folder, variant.name), variant, size)
    result = trial.result()[0].copy()
    trial.free()
    return result


def launch(folder: Path, size: int, dump: Path | None) -> None:
    """Each rung once on the card."""
    from gemm_lab.gpu import GpuBackend

    backend = GpuBackend()
    results = {v.name: execute(backend, folder, v, size) for v in cuda_core_rungs()}
    if dump:
        numpy.savez_compressed(dump, **results)


def read_ncu(path: Path) -> dict[str, dict[str, float]]:
    """Kernel name -> our metric names -> value, from `ncu --csv`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    names = {metric: name for name, metric in METRICS.items()}
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines[start:]):
        metric = row["Metric Name"]
        if metric in names:
            scale = UNITS.get(row["Metric Unit"], 1)
            value = float(row["Metric Value"].replace(",", "")) * scale
            found.setdefault(row["Kernel Name"].split("(")[0], {})[names[metric]] = value
    return found


def record(folder: Path, tables: list[Path], dump: Path | None, out: Path) -> None:
    """Join hashes, counters by size and the results' own bits."""
    data: dict[str, Any] = {"schema": 1, "device": "NVIDIA H200", "arch": ARCH, "rungs": {}}
    outputs = numpy.load(dump) if dump else None
    for variant in cuda_core_rungs():
        facts = json.loads((folder / f"{variant.name}.json").read_text(encoding="utf-8"))
        entry: dict[str, Any] = {
            "ptx_hash": facts["ptx_hash"],
            "nvrtc": facts["nvrtc"],
            "counters": {},
        }
        for table in tables:
            size = table.stem.rpartition("_")[2]
            entry["counters"][size] = read_ncu(table).get(variant.entry, {})
        if outputs is not None:
            import hashlib

            c = outputs[variant.name]
            entry["outputs"] = {
                "size": int(c.shape[0]),
                "sha256": hashlib.sha256(numpy.ascontiguousarray(c).tobytes()).hexdigest(),
            }
        data["rungs"][variant.name] = entry
    out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare").add_argument("folder", type=Path)
    commands.add_parser("metrics")
    one = commands.add_parser("launch")
    one.add_argument("folder", type=Path)
    one.add_argument("--size", type=int, default=1024)
    one.add_argument("--dump", type=Path)
    joined = commands.add_parser("record")
    joined.add_argument("folder", type=Path)
    joined.add_argument("tables", type=Path, nargs="+")
    joined.add_argument("--dump", type=Path)
    joined.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options.folder)
    elif options.command == "metrics":
        print(",".join(METRICS.values()))
    elif options.command == "launch":
        launch(options.folder, options.size, options.dump)
    else:
        record(options.folder, options.tables, options.dump, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
