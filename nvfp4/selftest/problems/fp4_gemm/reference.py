import torch
from comparison import compared

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decoded(packed, scales):
    """Float32 [rows, k, l] from FP4 [rows, k/2, l] and E4M3 scales [rows, k/16, l]."""
    codes = packed.view(torch.uint8).long()
    values = torch.tensor([*MAGNITUDES, *(-each for each in MAGNITUDES)], device=packed.device)
    pairs = torch.stack([values[codes & 15], values[codes >> 4]], dim=2)
    rows, _, _, l = pairs.shape
    return pairs.reshape(rows, -1, l) * scales.float().repeat_interleave(16, dim=1)


def ref_kernel(data):
    a, b, sfa, sfb, c = data
    c.copy_(torch.einsum("mkl,nkl->mnl", decoded(a, sfa), decoded(b, sfb)).half())
    return c


def generate_input(m, n, k, l, seed):
    """a and b, FP4 [rows, k/2, l]; their scales, E4M3 [rows, k/16, l]; c, float16 [m, n, l]."""
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)

    def drawn(rows, columns, most):
        sizes = (l, rows, columns)
        whole = torch.randint(0, most, sizes, device="cuda", generator=generator, dtype=torch.uint8)
        return whole.permute(1, 2, 0)

    a, b = (drawn(rows, k // 2, 256).view(torch.float4_e2m1fn_x2) for rows in (m, n))
    sfa, sfb = (drawn(rows, k // 16, 3).to(torch.float8_e4m3fn) for rows in (m, n))
    c = torch.empty((l, m, n), device="cuda", dtype=torch.float16).permute(1, 2, 0)
    return a, b, sfa, sfb, c


def check_implementation(data, output):
    return compared(output, ref_kernel(data))
