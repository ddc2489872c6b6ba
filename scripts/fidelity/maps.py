"""Tensor maps: the driver's bytes against what the emulator reads in them, and what fills a tile.

    python -m scripts.fidelity.maps --json OUT

Every map is made by the driver's cuTensorMapEncodeTiled, read back by emulator.cutedsl, and a
one-row tile that reaches out of its tensor is copied by the device and by the emulator.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nvfp4.capture.cutedsl.descriptor import decode
from nvfp4.capture.tensormap import DataType, Fill, Swizzle, TensorMap
from nvfp4.emulator import run_ptx
from nvfp4.emulator.errors import EmulatorError
from scripts.fidelity.cuda_driver import Driver
from scripts.fidelity.ptx import HEADER

PLAIN = TensorMap(DataType.UINT8, 0x7F0000001000, (256, 64), (256,), (32, 8), (1, 1))
TILE_BYTES = 256

COPY = (
    HEADER
    + """.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 out)
{
    .reg .pred %ready, %more;
    .reg .b32 %tile, %bar, %word, %i;
    .reg .b64 %map, %out;
    .shared .align 128 .b8 tile[256];
    .shared .align 8 .b64 bar;
    mov.u32 %tile, tile;
    mov.u32 %bar, bar;
    mbarrier.init.shared.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    mov.b64 %map, map;
    cvta.param.u64 %map, %map;
    mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 256;
    mov.u32 %i, 0;
    cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%tile], [%map, {%i}], [%bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %ready, [%bar], 0;
    @!%ready bra WAIT;
    ld.param.u64 %out, [out];
NEXT:
    ld.shared.b32 %word, [%tile];
    st.global.b32 [%out], %word;
    add.u32 %tile, %tile, 4;
    add.u64 %out, %out, 4;
    add.u32 %i, %i, 4;
    setp.lt.u32 %more, %i, 256;
    @%more bra NEXT;
    exit;
}
"""
)


def variations() -> list[TensorMap]:
    """PLAIN with one thing changed at a time, as far as the emulator's own rules allow."""
    maps = [PLAIN]
    for data_type in DataType:
        if data_type.name.startswith("PACKED"):
            continue
        bytes_ = {"8": 1, "16": 2, "32": 4, "64": 8}[
            "".join(c for c in data_type.name.split("_")[0] if c.isdigit())
        ]
        maps.append(replace(PLAIN, data_type=data_type, strides_bytes=(256 * bytes_,)))
    maps += [
        replace(PLAIN, swizzle=Swizzle.NONE, box=(16, 8)),
        *(replace(PLAIN, swizzle=s, box=(16 << s, 8)) for s in (Swizzle(i) for i in range(1, 4))),
        *(replace(PLAIN, l2_promotion=promotion) for promotion in range(4)),
        replace(PLAIN, data_type=DataType.FLOAT16, strides_bytes=(512,), fill=Fill.NAN),
        replace(PLAIN, box=(256, 256), shape=(2**32, 2**32), strides_bytes=(2**40 - 16,)),
        TensorMap(DataType.UINT8, 4096, (64,), (), (32,), (1,)),
        TensorMap(DataType.UINT8, 4096, (64, 3, 5), (64, 192), (32, 2, 3), (1,) * 3),
        TensorMap(DataType.UINT8, 4096, (64, 3, 5, 7), (64, 192, 1 << 37), (32, 2, 3, 4), (1,) * 4),
        TensorMap(
            DataType.UINT8,
            4096,
            (64, 3, 5, 7, 9),
            (64, 192, 1 << 37, 1 << 39),
            (32, 2, 3, 4, 5),
            (1,) * 5,
        ),
    ]
    return maps


def compare_maps(driver: Driver) -> list[dict[str, Any]]:
    """Each variation as the driver encodes it, decoded."""
    rows = []
    for tensor_map in variations():
        row: dict[str, Any] = {"asked": repr(tensor_map)}
        try:
            raw = driver.encode_tensor_map(tensor_map)
            words = np.frombuffer(raw, np.uint64)
            row["words"] = [f"{int(word):016x}" for word in words[:8]]
            # CuTe DSL writes 2 into a nibble that the driver leaves clear.
            raw = raw[:8] + bytes([raw[8] | 2]) + raw[9:]
            row["read"] = repr(decode(raw))
            row["same"] = decode(raw) == tensor_map
        except (RuntimeError, EmulatorError) as error:
            row["error"] = str(error)
        rows.append(row)
    return rows


def compare_fills(driver: Driver) -> list[dict[str, Any]]:
    """A tile of 256 bytes over a tensor of 128: the device's bytes and the emulator's."""
    rows = []
    kinds = {DataType.FLOAT16: 2, DataType.BFLOAT16: 2, DataType.FLOAT32: 4, DataType.FLOAT64: 8}
    module = driver.load(COPY)
    for (data_type, size), fill in itertools.product(kinds.items(), Fill):
        source = np.arange(128, dtype=np.uint8)
        address, out = driver.allocate(128), driver.allocate(TILE_BYTES)
        driver.upload(address, source)
        tensor_map = TensorMap(
            data_type, address, (128 // size,), (), (TILE_BYTES // size,), (1,), fill=fill
        )
        raw = driver.encode_tensor_map(tensor_map)
        parameters = [raw, out.to_bytes(8, "little")]
        driver.launch(driver.function(module, "copy"), (1, 1, 1), (1, 1, 1), parameters)
        device = np.zeros(TILE_BYTES, np.uint8)
        driver.download(out, device)

        emulated = np.zeros(TILE_BYTES, np.uint8)
        here = replace(tensor_map, address=source.ctypes.data)
        parameters = [here.pack(), emulated.ctypes.data.to_bytes(8, "little")]
        buffers = [
            ("source", source.ctypes.data, source.nbytes),
            ("tile", emulated.ctypes.data, emulated.nbytes),
        ]
        row: dict[str, Any] = {
            "type": data_type.name,
            "fill": fill.name,
            "device": device[124:136].tobytes().hex(" "),
        }
        try:
            run_ptx(COPY, "copy", (1,), (1,), parameters, buffers=buffers)
            row["emulated"] = emulated[124:136].tobytes().hex(" ")
            row["same"] = bool((device == emulated).all())
        except EmulatorError as error:
            row["error"] = str(error)
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the findings to this file")
    arguments = parser.parse_args()
    driver = Driver()
    found = {"maps": compare_maps(driver), "fills": compare_fills(driver)}
    for row in [*found["maps"], *found["fills"]]:
        print("same" if row.get("same") else "DIFFERS", row)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
