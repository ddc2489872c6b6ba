"""Contents that are another for each of many processes, at the cost of one: only b's scales differ.

Equal contents would let a process take the result of one that was called before.
"""

import torch

from nvfp4.contract.reference import exact_gemv, round_once_to_fp16
from nvfp4.contract.task import input_t, output_t

_codes = 0x00, 0x38, 0x40
"""0, 1 and 2 in E4M3, as in the contest's inputs."""


def with_own_scales(data: input_t, count: int) -> list[tuple[input_t, output_t]]:
    """So many inputs with other scales of row 0 of b, and what ``reference.ref_kernel`` makes of
    each.
    """
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
    k_blocks, l = sfb.shape[1:]
    table = torch.tensor(_codes, dtype=torch.uint8, device=c.device)
    scales = table[torch.randint(0, len(_codes), (count, k_blocks, l), device=c.device)]
    exact = torch.stack(
        [
            exact_gemv(
                a.view(torch.uint8)[:, :, batch],
                b.view(torch.uint8)[0, :, batch],
                sfa[:, :, batch],
                scales[:, :, batch].T.contiguous().view(torch.float8_e4m3fn),
            )
            for batch in range(l)
        ]
    )
    results = round_once_to_fp16(exact)  # [l, m, count]
    block = torch.arange(k_blocks, device=c.device)
    found = []
    for number in range(count):
        plain, permuted = sfb.clone(), sfb_permuted.clone()
        plain.view(torch.uint8)[0] = scales[number]
        permuted.view(torch.uint8)[0, 0, 0, block % 4, block // 4] = scales[number]
        expected = torch.empty_like(c)
        expected[:, 0] = results[:, :, number].T
        found.append(((a, b, sfa, plain, sfa_permuted, permuted, c), expected))
    return found
