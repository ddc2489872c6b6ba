#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""Scratch on the device by .cuda() and device="cuda", and torch's current stream passed along.

The host asks torch about the device, prints what it finds and synchronises now and then.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack, make_ptr

from task import input_t, output_t

print("CUDA:", torch.cuda.is_available())
if torch.cuda.is_available():
    print(
        "capability", torch.cuda.get_device_capability(), torch.cuda.get_device_properties(0).name
    )

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


@cute.kernel
def kernel(
    a: cute.Tensor,
    b: cute.Tensor,
    sfa: cute.Tensor,
    sfb: cute.Tensor,
    lut: cute.Tensor,
    out: cute.Tensor,
):
    t, _, _ = cute.arch.thread_idx()
    bx, bz, _ = cute.arch.block_idx()
    row = bx * 64 + t
    total = cutlass.Float32(0)
    for block in range(sfa.shape[0]):
        dot = cutlass.Float32(0)
        for i in cutlass.range_constexpr(8):
            x = cutlass.Int32(a[block * 8 + i, row, bz]) & 255
            y = cutlass.Int32(b[block * 8 + i, 0, bz]) & 255
            dot += lut[x & 15] * lut[y & 15] + lut[x >> 4] * lut[y >> 4]
        scale = sfa[block, row, bz].to(cutlass.Float32) * sfb[block, 0, bz].to(cutlass.Float32)
        total += dot * scale
    out[row, bz] = total


@cute.jit
def launch(
    pa,
    pb,
    psfa,
    psfb,
    lut: cute.Tensor,
    out: cute.Tensor,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
    stream: cuda.CUstream,
):
    a = cute.make_tensor(pa, cute.make_layout((k // 2, m, l)))
    b = cute.make_tensor(pb, cute.make_layout((k // 2, 128, l)))
    sfa = cute.make_tensor(psfa, cute.make_layout((k // 16, m, l)))
    sfb = cute.make_tensor(psfb, cute.make_layout((k // 16, 128, l)))
    kernel(a, b, sfa, sfb, lut, out).launch(grid=[m // 64, l, 1], block=[64, 1, 1], stream=stream)


compiled = {}
table = None


def custom_kernel(data: input_t) -> output_t:
    global table
    a, b, sfa, sfb, _, _, c = data
    assert a.is_cuda and c.is_cuda
    m, k, l = a.shape[0], a.shape[1] * 2, a.shape[2]
    if table is None:
        table = E2M1.cuda()
        torch.cuda.synchronize()
    out = torch.zeros((l, m), dtype=torch.float32, device="cuda").permute(1, 0)
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    args = [
        make_ptr(cutlass.Uint8, a.data_ptr(), cute.AddressSpace.gmem),
        make_ptr(cutlass.Uint8, b.data_ptr(), cute.AddressSpace.gmem),
        make_ptr(cutlass.Float8E4M3FN, sfa.data_ptr(), cute.AddressSpace.gmem),
        make_ptr(cutlass.Float8E4M3FN, sfb.data_ptr(), cute.AddressSpace.gmem),
        from_dlpack(table),
        from_dlpack(out).mark_layout_dynamic(leading_dim=0),
        m,
        k,
        l,
        stream,
    ]
    if "launch" not in compiled:
        compiled["launch"] = cute.compile(launch, *args)
    compiled["launch"](*args)
    c[:, 0, :] = out.to(torch.float16)
    return c
