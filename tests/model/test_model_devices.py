"""The table of cards, a user's file, and ceilings that were measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from model_shapes import product

from gemm_lab.core.dtypes import DTYPES
from gemm_lab.errors import UsageError
from gemm_lab.model import (
    MeasuredCeilings,
    device_report,
    device_rows,
    find_device,
    load_devices,
    peak_tflops,
    render_measured,
)

DEVICES = load_devices()
WANTED = {
    "V100S", "T4", "A100", "RTX 3090", "RTX 4000 Ada", "RTX 4090", "L4", "L40S", "H100 SXM",
    "H100 PCIe", "H200", "B200", "RTX 5090",
}  # fmt: skip


def test_all_cards_are_there() -> None:
    keys = {find_device(name.replace("SXM", "SXM5 80GB"), DEVICES).key for name in WANTED}
    assert keys == set(DEVICES)
    assert len(device_rows(DEVICES)) == len(WANTED)


@pytest.mark.parametrize("key", DEVICES)
def test_a_card_is_whole(key: str) -> None:
    device = DEVICES[key]
    assert device.key == key
    assert len(device.source) > 20
    lanes = 128 if device.limits.number not in (70, 75, 80) else 64
    # fp32: SMs x lanes x 2 x clock, within the rounding of a data sheet.
    assert device.fp32_tflops == pytest.approx(
        device.sm_count * lanes * 2 * device.boost_clock_mhz * 1e6 / 1e12, rel=0.005
    )
    assert ("bf16" in device.tensor_tflops) == (device.limits.number >= 80)
    assert ("fp8" in device.tensor_tflops) == (device.limits.number >= 89)
    if "bf16" in device.tensor_tflops:
        assert device.tensor_tflops["bf16"] == device.tensor_tflops["fp16"]
        assert device.tensor_tflops["tf32"] == pytest.approx(
            device.tensor_tflops["bf16"] / 2, rel=0.01
        )
    if device.l2_gb_s is not None:
        assert device.dram_gb_s < device.l2_gb_s < device.smem_gb_s
    if device.dram_latency_cycles and device.l2_latency_cycles and device.smem_latency_cycles:
        assert device.smem_latency_cycles < device.l2_latency_cycles < device.dram_latency_cycles


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H200", "h200"),
        ("h200", "h200"),
        ("Tesla V100S-PCIE-32GB", "v100s"),
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("rtx 4090", "rtx_4090"),
        ("4090", "rtx_4090"),
        ("NVIDIA RTX 4000 Ada Generation", "rtx_4000_ada"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
    ],
)
def test_names_are_found(name: str, key: str) -> None:
    assert find_device(name, DEVICES).key == key


def test_names_do_not_collide() -> None:
    for device in DEVICES.values():
        for name in (device.key, device.name, *device.aliases):
            assert find_device(name, DEVICES) is device


def test_unknown_name_has_a_hint() -> None:
    with pytest.raises(UsageError, match="unknown GPU 'h201'") as error:
        find_device("h201", DEVICES)
    assert error.value.hint is not None
    assert "h200" in error.value.hint


def test_peaks_by_dtype() -> None:
    h200 = DEVICES["h200"]
    assert peak_tflops(h200, "fp32") == 66.9
    assert peak_tflops(h200, "fp32x3") == pytest.approx(494.7 / 3)
    assert {peak_tflops(h200, name) > 0 for name in DTYPES} == {True}
    with pytest.raises(UsageError, match="no bf16 peak"):
        peak_tflops(DEVICES["v100s"], "bf16")
    with pytest.raises(UsageError, match="unknown dtype"):
        peak_tflops(h200, "fp4")


NEW_CARD = """
[devices.my_card]
name = "My card"
arch = "sm_86"
sm_count = 28
boost_clock_mhz = 1777
dram_gb_s = 360
dram_bytes = 12_000_000_000
l2_bytes = 2_359_296
fp32_tflops = 12.7
source = "the box"
"""


def test_a_users_file_adds_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(
        NEW_CARD + "[devices.h200]\ndram_gb_s = 4700\n[devices.h200.tensor_tflops]\nfp16 = 900\n"
    )
    devices = load_devices(file)
    assert devices["my_card"].sm_count == 28
    assert devices["my_card"].tensor_tflops == {}
    assert devices["h200"].dram_gb_s == 4700
    assert devices["h200"].tensor_tflops == {**DEVICES["h200"].tensor_tflops, "fp16": 900}
    assert devices["h200"].l2_bytes == DEVICES["h200"].l2_bytes
    assert load_devices(tmp_path / "none.toml") == DEVICES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[devices.h200]\ndram_gbs = 3\n", r"devices\.h200\.dram_gbs: unknown key"),
        ("[devices.h200]\ndram_gb_s = 'x'\n", r"devices\.h200\.dram_gb_s: must be a number"),
        ("[devices.h200]\ndram_gb_s = inf\n", r"devices\.h200\.dram_gb_s: must be a number"),
        ("[devices.h200]\ndram_gb_s = nan\n", r"devices\.h200\.dram_gb_s: must be a number"),
        ("[devices.h200]\nsm_count = 1.5\n", r"devices\.h200\.sm_count: must be a whole"),
        ("[devices.h200]\nsm_count = true\n", r"devices\.h200\.sm_count: must be a whole"),
        ("[devices.h200]\narch = 'sm_13'\n", r"devices\.h200\.arch: no limits"),
        ("[devices.h200]\nsource = ''\n", r"devices\.h200\.source: must be a text"),
        ("[devices.h200]\naliases = 'h'\n", r"devices\.h200\.aliases: must be a list"),
        ("[devices.h200.tensor_tflops]\nfp4 = 1\n", r"tensor_tflops\.fp4: unknown key"),
        ("[devices.h200.measured]\nl3_gb_s = 1\n", r"measured\.l3_gb_s: unknown key"),
        ("[devices.h200]\nmeasured = 1\n", r"measured: must be a table"),
        ("[devices.h200]\ntensor_tflops = 1\n", r"tensor_tflops: must be a table"),
        ("[devices.new]\nname = 'x'\n", r"devices\.new\.arch: is missing"),
        ("[devices.'New Card']\nname = 'x'\n", r"devices\.New Card: a key is"),
        ("[cards.h200]\n", "unknown key 'cards'"),
        ("devices = 3\n", "devices: must hold one table"),
        ("[devices.h200\n", "not valid TOML"),
    ],
)
def test_faults_name_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        load_devices(file)
    assert str(file) in error.value.message


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        load_devices(file)


def test_measured_ceilings_go_out_and_come_back(tmp_path: Path) -> None:
    measured = MeasuredCeilings(
        sm_clock_mhz=1755.0,
        dram_gb_s=4275.0,
        l2_gb_s=6100.5,
        smem_gb_s=30000.0,
        fp32_tflops=54.5,
        tensor_tflops={"bf16": 869.0},
        dram_latency_cycles=700.0,
        source='wgmma alone, "normal" data',
    )
    file = tmp_path / "devices.toml"
    file.write_text(render_measured("h200", measured))
    device = load_devices(file)["h200"]
    assert device.measured == measured
    assert device.dram_gb_s == 4800
    card = device.calibrated()
    assert (card.dram_gb_s, card.l2_gb_s, card.boost_clock_mhz) == (4275.0, 6100.5, 1755.0)
    assert card.tensor_tflops["bf16"] == 869.0
    assert card.tensor_tflops["fp16"] == device.tensor_tflops["fp16"]
    assert card.l2_latency_cycles == device.l2_latency_cycles
    assert card.source == device.source
    report = device_report(device, product(4096))
    assert report.roofline.peak_tflops == 54.5
    assert [c.gb_s for c in report.roofline.ceilings] == [4275.0, 6100.5, 30000.0]
    assert DEVICES["h200"].calibrated() is DEVICES["h200"]
    assert dataclasses.replace(device, measured=None) == DEVICES["h200"]
    assert DEVICES["h200"].with_measured(measured) == device
