"""Likely causes of a wrong output: misreadings of the inputs, each tried against the output.

A cause is named only when computing with that misreading reproduces the output, so the message is
evidence and not a guess.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from reference import close_enough, exact_gemv, round_once_to_fp16
from task import input_t, n_padded, output_t

_max_sampled_rows = 256
_reproduced_share = 0.99


@dataclass(frozen=True)
class Operands:
    """What a kernel may read for some rows of one batch, as raw bytes.

    a: uint8 [rows, k//2]; b: uint8 [k//2]; sfa: uint8 [rows, k//16]; sfb: uint8 [k//16].
    """

    a: torch.Tensor
    b: torch.Tensor
    sfa: torch.Tensor
    sfb: torch.Tensor

    def gemv(self) -> torch.Tensor:
        """float16 [rows]."""
        e4m3 = torch.float8_e4m3fn
        return round_once_to_fp16(
            exact_gemv(self.a, self.b, self.sfa.contiguous().view(e4m3), self.sfb.view(e4m3))
        )


@dataclass(frozen=True)
class Sample:
    """The rows on which causes are tried, and the raw storage of every input.

    a [l, m, k//2], b [l, 128, k//2], sfa [l, m, k//16], sfb [l, 128, k//16]: uint8, contiguous.
    sfa_permuted, sfb_permuted: uint8, the flat storage of the permuted scales.
    """

    rows: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    sfa: torch.Tensor
    sfb: torch.Tensor
    sfa_permuted: torch.Tensor
    sfb_permuted: torch.Tensor

    def operands(self, batch: int) -> Operands:
        return Operands(
            self.a[batch, self.rows],
            self.b[batch, 0],
            self.sfa[batch, self.rows],
            self.sfb[batch, 0],
        )


Misreading = Callable[[Sample, int], Operands | None]
"""What a wrong kernel would read for a batch; None where it would read the same or past the end."""


def _storage(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    return tensor.view(torch.uint8).permute(order).contiguous()


def _as_if_permuted(
    scales: torch.Tensor, rows: torch.Tensor, batch: int, k_blocks: int
) -> torch.Tensor:
    """Plain storage [l, m, k//16] read with the index arithmetic of the permuted layout."""
    _, m, _ = scales.shape
    i = rows[:, None]
    j = torch.arange(k_blocks, device=rows.device)[None, :]
    tile = (batch * (m // 128) + i // 128) * (k_blocks // 4) + j // 4
    offset = ((tile * 32 + i % 32) * 4 + (i % 128) // 32) * 4 + j % 4
    return scales.flatten()[offset]


def _sfa_plain_as_permuted(sample: Sample, batch: int) -> Operands | None:
    _, m, k_blocks = sample.sfa.shape
    if m % 128:
        return None
    read = _as_if_permuted(sample.sfa, sample.rows, batch, k_blocks)
    return replace(sample.operands(batch), sfa=read)


def _sfb_plain_as_permuted(sample: Sample, batch: int) -> Operands | None:
    first = torch.zeros(1, dtype=torch.int64, device=sample.rows.device)
    read = _as_if_permuted(sample.sfb, first, batch, sample.sfb.shape[2])
    return replace(sample.operands(batch), sfb=read[0])


def _both_plain_as_permuted(sample: Sample, batch: int) -> Operands | None:
    sfa, sfb = _sfa_plain_as_permuted(sample, batch), _sfb_plain_as_permuted(sample, batch)
    return replace(sfa, sfb=sfb.sfb) if sfa and sfb else None


def _sfa_permuted_as_plain(sample: Sample, batch: int) -> Operands | None:
    l, m, k_blocks = sample.sfa.shape
    plain = sample.sfa_permuted[: l * m * k_blocks].view(l, m, k_blocks)
    return replace(sample.operands(batch), sfa=plain[batch, sample.rows])


def _sfb_permuted_as_plain(sample: Sample, batch: int) -> Operands | None:
    return replace(sample.operands(batch), sfb=sample.sfb_permuted.view(sample.sfb.shape)[batch, 0])


def _both_permuted_as_plain(sample: Sample, batch: int) -> Operands | None:
    sfa, sfb = _sfa_permuted_as_plain(sample, batch), _sfb_permuted_as_plain(sample, batch)
    return replace(sfa, sfb=sfb.sfb) if sfa and sfb else None


def _swap_nibbles(packed: torch.Tensor) -> torch.Tensor:
    return (packed << 4) | (packed >> 4)


def _changed(**changes: Callable[[torch.Tensor], torch.Tensor]) -> Misreading:
    """A misreading that changes named operands of the right batch."""

    def misread(sample: Sample, batch: int) -> Operands:
        operands = sample.operands(batch)
        return replace(
            operands, **{name: change(getattr(operands, name)) for name, change in changes.items()}
        )

    return misread


def _shifted(blocks: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda scales: scales.roll(-blocks, dims=-1)


def _unpadded(*names: str) -> Misreading:
    """Batch b of b (or sfb) read b rows into its storage, as if it had one row and not 128."""

    def misread(sample: Sample, batch: int) -> Operands | None:
        if batch == 0:
            return sample.operands(batch)
        rows = {name: getattr(sample, name).flatten(0, 1) for name in names}
        return replace(sample.operands(batch), **{name: row[batch] for name, row in rows.items()})

    return misread


def _first_batch(*names: str) -> Misreading:
    def misread(sample: Sample, batch: int) -> Operands:
        first = sample.operands(0)
        return replace(sample.operands(batch), **{name: getattr(first, name) for name in names})

    return misread


def _without_sign(packed: torch.Tensor) -> torch.Tensor:
    return packed & 0x77


def _low_nibbles(packed: torch.Tensor) -> torch.Tensor:
    return packed & 0x0F


def _magnitude(scales: torch.Tensor) -> torch.Tensor:
    return scales & 0x7F


def _subnormals_flushed(scales: torch.Tensor) -> torch.Tensor:
    return torch.where((scales & 0x78) == 0, 0, scales)


def _all_ones(scales: torch.Tensor) -> torch.Tensor:
    return torch.full_like(scales, 0x38)


misreadings: dict[str, Misreading] = {
    "sfa is the unpermuted tensor but is read with the permuted index": _sfa_plain_as_permuted,
    "sfb is the unpermuted tensor but is read with the permuted index": _sfb_plain_as_permuted,
    "sfa and sfb are the unpermuted tensors but are read with the permuted index": (
        _both_plain_as_permuted
    ),
    "sfa_permuted is read as if it were unpermuted": _sfa_permuted_as_plain,
    "sfb_permuted is read as if it were unpermuted": _sfb_permuted_as_plain,
    "sfa_permuted and sfb_permuted are read as if they were unpermuted": _both_permuted_as_plain,
    "the nibbles of a (or of b) are swapped: element 2i stands in the low nibble": (
        _changed(a=_swap_nibbles)
    ),
    "the scales of a are read one block late": _changed(sfa=_shifted(-1)),
    "the scales of a are read one block early": _changed(sfa=_shifted(1)),
    "the scales of b are read one block late": _changed(sfb=_shifted(-1)),
    "the scales of b are read one block early": _changed(sfb=_shifted(1)),
    "all scales are read one block late": _changed(sfa=_shifted(-1), sfb=_shifted(-1)),
    "all scales are read one block early": _changed(sfa=_shifted(1), sfb=_shifted(1)),
    "the scales of a are left out": _changed(sfa=_all_ones),
    "the scales of b are left out": _changed(sfb=_all_ones),
    "all scales are left out": _changed(sfa=_all_ones, sfb=_all_ones),
    f"b is read as if it had one row a batch: it is padded to {n_padded} rows": _unpadded("b"),
    f"sfb is read as if it had one row a batch: it is padded to {n_padded} rows": _unpadded("sfb"),
    f"b and sfb are read as if they had one row a batch: they are padded to {n_padded} rows": (
        _unpadded("b", "sfb")
    ),
    "every batch reads a of batch 0": _first_batch("a"),
    "every batch reads b of batch 0": _first_batch("b"),
    "every batch reads sfa of batch 0": _first_batch("sfa"),
    "every batch reads sfb of batch 0": _first_batch("sfb"),
    "every batch reads b and sfb of batch 0": _first_batch("b", "sfb"),
    "every batch reads a and sfa of batch 0": _first_batch("a", "sfa"),
    "high nibbles are skipped": _changed(a=_low_nibbles, b=_low_nibbles),
    "the sign of FP4 values is ignored": _changed(a=_without_sign, b=_without_sign),
    "the sign of a's FP4 values is ignored": _changed(a=_without_sign),
    "the sign of b's FP4 values is ignored": _changed(b=_without_sign),
    "the sign of the scales is ignored": _changed(sfa=_magnitude, sfb=_magnitude),
    "subnormal scales are read as zero": _changed(sfa=_subnormals_flushed, sfb=_subnormals_flushed),
}


def _share(got: torch.Tensor, want: torch.Tensor) -> float:
    return float(close_enough(got, want).double().mean())


def _outputs(sample: Sample, l: int) -> Iterator[tuple[str, torch.Tensor]]:
    for cause, misreading in misreadings.items():
        batches = [misreading(sample, batch) for batch in range(l)]
        operands = [each for each in batches if each is not None]
        if len(operands) == l:
            yield cause, torch.stack([each.gemv() for each in operands], dim=1)


def _wrong_batch(output: torch.Tensor, ref: torch.Tensor) -> str | None:
    """output, ref: [rows, l]."""
    l = ref.shape[1]
    source = []
    for batch in range(l):
        shares = [_share(output[:, batch], ref[:, other]) for other in range(l)]
        best = max(range(l), key=lambda other: (shares[other], other == batch))
        if shares[best] < _reproduced_share:
            return None
        source.append(best)
    swaps = [f"{batch} holds {other}" for batch, other in enumerate(source) if batch != other]
    return f"results stand in the wrong batch: batch {', '.join(swaps)}" if swaps else None


def likely_cause(data: input_t, output: output_t, ref: output_t) -> str | None:
    """The misreadings that reproduce a wrong output, joined by "or", or None.

    data: as the submission got it; output, ref: float16 [m, 1, l]. Tried on a sample of at most
    256 rows, wrong ones first.
    """
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
    got, want = output[:, 0, :], ref[:, 0, :]
    row_is_right = close_enough(got, want).all(dim=1)
    rows = torch.argsort(row_is_right.to(torch.uint8), stable=True)[:_max_sampled_rows]
    got, want = got[rows], want[rows]

    unwritten = (output == c) & ~close_enough(output, ref)
    if output.data_ptr() != c.data_ptr() and bool(unwritten.any()):
        share = float(unwritten.sum() / (~close_enough(output, ref)).sum())
        if share > _reproduced_share:
            return f"c was not written: {int(unwritten.sum())} elements hold what c held before"
    moved = _wrong_batch(got, want) if want.shape[1] > 1 else None
    if moved:
        return moved
    sample = Sample(
        rows,
        _storage(a, (2, 0, 1)),
        _storage(b, (2, 0, 1)),
        _storage(sfa, (2, 0, 1)),
        _storage(sfb, (2, 0, 1)),
        _storage(sfa_permuted, (5, 2, 4, 0, 1, 3)).flatten(),
        _storage(sfb_permuted, (5, 2, 4, 0, 1, 3)).flatten(),
    )
    causes = [
        cause
        for cause, misread in _outputs(sample, want.shape[1])
        if _share(got, misread) >= _reproduced_share and _share(want, misread) < 1
    ]
    return ", or ".join(causes) or None
