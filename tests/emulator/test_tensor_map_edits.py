"""tensormap.replace against the bytes of the host's encoder."""

import numpy as np
import pytest
from ptx_harness import run

from nvfp4.emulator.errors import UnsupportedInstruction
from nvfp4.records.tensormap import DataType, Fill, Swizzle, TensorMap

MAP = TensorMap(
    data_type=DataType.BFLOAT16, address=0x7F1234567800, shape=(640, 48, 3, 2),
    strides_bytes=(1 << 37, 96, 1 << 36), box=(32, 200, 1, 2), element_strides=(1,) * 4,
    swizzle=Swizzle.BYTES_64, fill=Fill.NAN
)  # fmt: skip


def edit(field: str, value: str, ordinal: int | None = None, where: str = "shared::cta") -> str:
    """One tensormap.replace; %d1 is the map's address."""
    width = "b64" if field in ("global_address", "global_stride") else "b32"
    dimension = "" if ordinal is None else f"{ordinal}, "
    return f"tensormap.replace.tile.{field}.{where}.b1024.{width} [%d1], {dimension}{value};"


def edits(where: str) -> str:
    body = f"mov.b64 %d3, {MAP.address};" + edit("global_address", "%d3", where=where)
    body += edit("rank", "3", where=where) + edit("elemtype", "10", where=where)
    body += edit("swizzle_mode", "2", where=where) + edit("fill_mode", "1", where=where)
    body += edit("interleave_layout", "0", where=where)
    for i in range(4):
        for field, values in (("box_dim", MAP.box), ("global_dim", MAP.shape)):
            body += f"mov.b32 %r9, {values[i]};" + edit(field, "%r9", i, where)
        body += edit("element_stride", "1", i, where)
    for i, stride in enumerate(MAP.strides_bytes):
        body += f"mov.b64 %d4, {stride};" + edit("global_stride", "%d4", i, where)
    return body


def test_a_map_made_in_shared_memory_is_copied_by_a_warp() -> None:
    a = np.zeros(272, np.uint8)
    a = a[-a.ctypes.data % 128 :][:128]
    body = f"""mov.u32 %r1, s; cvt.u64.u32 %d1, %r1; shl.b32 %r2, %r0, 2; add.u32 %r2, %r2, %r1;
    mov.b32 %r3, 0; st.shared.b32 [%r2], %r3; bar.warp.sync 0xffffffff;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra MADE; {edits("shared::cta")} MADE: bar.warp.sync 0xffffffff;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%q0], [%d1], 128;"""
    report = run(body, a, before=".shared .align 128 .b8 s[128];")
    assert a.tobytes() == MAP.pack()
    assert not report.findings


def test_a_map_in_global_memory_is_edited_in_place() -> None:
    a = np.zeros(128, np.uint8)
    run(f"mov.b64 %d1, %q0; {edits('global')}", a, block=1)
    assert TensorMap.unpack(a.tobytes()) == MAP


@pytest.mark.parametrize(
    ("field", "new", "at"),
    [
        ("element_stride", "2", 0),
        ("interleave_layout", "1", None),
        ("box_dim", "2", 5),
        ("c", "2", 0),
    ],
)
def test_what_is_not_emulated_is_refused(field: str, new: str, at: int | None) -> None:
    with pytest.raises(UnsupportedInstruction):
        run(f"mov.b64 %d1, %q0; {edit(field, new, at, 'global')}", np.zeros(128, np.uint8), block=1)
