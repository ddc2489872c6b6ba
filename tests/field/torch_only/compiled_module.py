# expect: pass
"""The table is a buffer of a compiled module in double precision; one einsum for all batches."""

import torch


class Dequantize(torch.nn.Module):
    def __init__(self):
        super().__init__()
        half = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        self.register_buffer("table", torch.tensor(half + [-value for value in half]))

    def forward(self, packed, scales):
        codes = packed.view(torch.uint8)
        values = torch.stack([self.table[(codes & 0xF).long()], self.table[(codes >> 4).long()]], 2)
        return values.flatten(1, 2) * scales.to(self.table.dtype).repeat_interleave(16, dim=1)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    if torch.cuda.get_device_capability(a.device) < (10, 0):
        raise RuntimeError("needs Blackwell")
    assert torch.cuda.get_device_properties(a.device).multi_processor_count > 100
    dequantize = torch.compile(Dequantize().double().cuda().eval())
    with torch.inference_mode(), torch.cuda.device(a.device):
        rows, vector = dequantize(a, sfa), dequantize(b[:1], sfb[:1])
        return torch.einsum("mkl,nkl->mnl", rows, vector).to(torch.float16)
