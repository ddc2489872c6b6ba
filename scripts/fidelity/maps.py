"""Tensor maps: the driver's bytes against what capture reads in them, and what fills a tile.

Every map is encoded by the driver's cuTensorMapEncodeTiled and read back by TensorMap.unpack. A
one-row tile that reaches out of its tensor is copied by the device and by the emulator.
"""

import ctypes
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nvfp4 import emulator
from nvfp4.records.launch import Buffer, Launch, ListedMemory
from nvfp4.records.launch_errors import InvalidTensorMap
from nvfp4.records.tensormap import DataType, Fill, Swizzle, TensorMap
from nvfp4.retarget.driver import installed_driver
from scripts.fidelity.execute import to_device
from scripts.fidelity.outcome import Outcome, difference
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
    """PLAIN with one thing changed at a time, and a map of each other rank."""
    types = [each for each in DataType if not each.name.startswith("PACKED")]
    typed = [replace(PLAIN, data_type=each) for each in types]
    shape, strides, box = (64, 3, 5, 7, 9), (64, 192, 1 << 37, 1 << 39), (32, 2, 3, 4, 5)
    return [
        *(replace(each, strides_bytes=(32 * each.element_bits,)) for each in typed),
        replace(PLAIN, swizzle=Swizzle.NONE, box=(16, 8)),
        *(replace(PLAIN, swizzle=Swizzle(i), box=(16 << i, 8)) for i in range(1, 4)),
        *(replace(PLAIN, l2_promotion=promotion) for promotion in range(1, 4)),
        replace(PLAIN, data_type=DataType.FLOAT16, strides_bytes=(512,), fill=Fill.NAN),
        replace(PLAIN, box=(256, 256), shape=(2**32, 2**32), strides_bytes=(2**40 - 16,)),
        *(
            TensorMap(
                DataType.UINT8, 4096, shape[:rank], strides[: rank - 1], box[:rank], (1,) * rank
            )
            for rank in (1, 3, 4, 5)
        ),
    ]


def encoded(tensor_map: TensorMap) -> bytes:
    """The 128 bytes that the driver encodes a tensor map as. Raises DriverError."""
    memory = ctypes.create_string_buffer(192)
    target = -(-ctypes.addressof(memory) // 64) * 64
    rank = tensor_map.rank
    installed_driver().call(
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(target),
        int(tensor_map.data_type),
        rank,
        ctypes.c_void_p(tensor_map.address),
        (ctypes.c_uint64 * rank)(*tensor_map.shape),
        (ctypes.c_uint64 * max(rank - 1, 1))(*tensor_map.strides_bytes),
        (ctypes.c_uint32 * rank)(*tensor_map.box),
        (ctypes.c_uint32 * rank)(*tensor_map.element_strides),
        int(tensor_map.interleave),
        int(tensor_map.swizzle),
        tensor_map.l2_promotion,
        int(tensor_map.fill),
    )
    return ctypes.string_at(target, 128)


def compare_maps() -> Iterator[Outcome]:
    """Each variation as the driver encodes it, decoded."""
    installed_driver().use_context()
    for asked in variations():
        raw = encoded(asked)
        # CuTe DSL writes 2 into a nibble that the driver leaves clear.
        raw = raw[:8] + bytes([raw[8] | 2]) + raw[9:]
        outcome = Outcome(repr(asked), 1, 0)
        try:
            read = TensorMap.unpack(raw)
        except InvalidTensorMap as error:
            outcome.error = f"{error}: {raw[:64].hex(' ', 8)}"
        else:
            if read != asked:
                outcome.different = 1
                outcome.samples = [{"device": [repr(read)], "bytes": [raw[:64].hex(" ", 8)]}]
        yield outcome


def compare_fills() -> Iterator[Outcome]:
    """A tile of 256 bytes over a tensor of 128: the device's bytes and the emulator's."""
    kinds = {DataType.FLOAT16: 2, DataType.BFLOAT16: 2, DataType.FLOAT32: 4, DataType.FLOAT64: 8}
    source = np.arange(128, dtype=np.uint8)
    there = to_device(source)
    copy = installed_driver().load(COPY).kernel("copy", (128, 8))
    for (data_type, size), fill in itertools.product(kinds.items(), Fill):
        shape, box = (128 // size,), (TILE_BYTES // size,)
        here = TensorMap(data_type, source.ctypes.data, shape, (), box, (1,), fill=fill)
        out = to_device(np.zeros(TILE_BYTES, np.uint8))
        raw = encoded(replace(here, address=there.data_ptr()))
        parameters = [raw, out.data_ptr().to_bytes(8, "little")]
        copy.launch((1, 1, 1), (1, 1, 1), 0, parameters, 0)
        emulated = np.zeros(TILE_BYTES, np.uint8)
        parameters = [here.pack(), emulated.ctypes.data.to_bytes(8, "little")]
        buffers = [
            Buffer("the source", source.ctypes.data, source.nbytes),
            Buffer("the tile", emulated.ctypes.data, emulated.nbytes),
        ]
        memory = ListedMemory(buffers)
        emulator.run(Launch(COPY, "copy", (1, 1, 1), (1, 1, 1), parameters, memory=memory))
        label = f"{data_type.name} filled with {fill.name}"
        yield difference(label, [np.arange(TILE_BYTES)], [emulated], [out.cpu().numpy()])
