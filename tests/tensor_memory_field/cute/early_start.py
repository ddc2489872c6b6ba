# expect: right
"""The second kernel may begin early and waits for the first before it reads."""

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def first(mIn: cute.Tensor, mSquares: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    cute.arch.griddepcontrol_launch_dependents()
    mSquares[tidx] = mIn[tidx] * mIn[tidx]


@cute.kernel
def second(mIn: cute.Tensor, mSquares: cute.Tensor, mOut: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    own = mIn[tidx]
    cute.arch.griddepcontrol_wait()
    mOut[tidx] = own + mSquares[63 - tidx]


@cute.jit
def launch(mIn: cute.Tensor, mSquares: cute.Tensor, mOut: cute.Tensor):
    first(mIn, mSquares).launch(grid=(1, 1, 1), block=(64, 1, 1), use_pdl=True)
    second(mIn, mSquares, mOut).launch(grid=(1, 1, 1), block=(64, 1, 1), use_pdl=True)


def run():
    x = torch.randint(-9, 9, (64,)).float()
    squares, out = torch.zeros(2, 64, device="cuda")
    launch(from_dlpack(x.cuda()), from_dlpack(squares), from_dlpack(out))
    return out, x + (x * x).flip(0)
