"""Runs submissions of the corpus on small shapes and prints what comes out, one line each.

PYTHONPATH=.:tests python -m field.driver [--check] [--limit SECONDS] [NAME ...]

A name is "folder/module" or a folder; all of the corpus without any. Each submission runs in a
process of its own under the emulator. Where torch has no CUDA, calls of `torch.cuda` that
submissions make are stubbed out: "cuda" is the CPU here.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import multiprocessing
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch

from field.corpus import Entry, load

SHAPES = ((128, 256, 1), (512, 512, 2), (128, 1536, 1))
SEED = 1111
TIME_LIMIT_S = 120.0


def _cpu_for_cuda(function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if "cuda" in str(options.get("device")):
            options["device"] = "cpu"
        return function(*arguments, **options)

    return wrapped


def _scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, *_: Any, **options: Any) -> Any:
    """torch._scaled_mm on NVFP4 operands whose scales are in the blocked layout."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])

    def dequantised(packed: Any, blocked: Any) -> Any:
        codes = packed.contiguous().view(torch.uint8)
        rows, half = codes.shape
        pair = torch.stack((codes & 15, codes >> 4), dim=-1).reshape(rows, 2 * half)
        tiles = blocked.flatten().view(-1, half // 32, 32, 4, 4).permute(0, 3, 2, 1, 4)
        scales = tiles.reshape(-1, half // 8)[:rows].float()
        return values[pair.long()] * scales.repeat_interleave(16, dim=1)

    product = dequantised(a, scale_a).double() @ dequantised(b.t(), scale_b).double().t()
    return product.to(options["out_dtype"])


def _same(self: Any, *_: Any, **__: Any) -> Any:
    return self


def stub_cuda() -> None:
    """Makes the calls of torch.cuda that the corpus makes mean the CPU; modules of the contest."""
    stream = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    stream.wait_stream = lambda other: None
    cuda: Any = torch.cuda
    cuda.current_stream = lambda *_: stream
    cuda.Stream = lambda *_: stream
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.synchronize = lambda *_: None
    cuda.is_available = lambda: True
    cuda.get_device_capability = lambda *_: (10, 0)
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        multi_processor_count=148, name="NVIDIA B200"
    )
    tensor: Any = torch.Tensor
    tensor.cuda = _same
    tensor.is_cuda = property(lambda _: True)
    for name in ("empty", "zeros", "ones", "full", "tensor", "arange", "empty_like", "zeros_like"):
        setattr(torch, name, _cpu_for_cuda(getattr(torch, name)))
    tensor.to = _cpu_for_cuda_to(tensor.to)
    torch._scaled_mm = _scaled_mm
    utils: Any = types.ModuleType("utils")
    utils.make_match_reference = lambda reference, **_: reference
    utils.verbose_allclose = lambda *_, **__: []
    utils.set_seed = torch.manual_seed
    utils.DeterministicContext = contextlib.nullcontext
    sys.modules.setdefault("utils", utils)


def _cpu_for_cuda_to(to: Any) -> Any:
    def wrapped(self: Any, *arguments: Any, **options: Any) -> Any:
        if "cuda" in str(options.get("device", "")):
            options["device"] = "cpu"
        kept = ["cpu" if "cuda" in str(each) else each for each in arguments]
        return to(self, *kept, **options)

    return wrapped


def run_entry(path: Path, check: bool, shapes: tuple[tuple[int, int, int], ...]) -> str:
    """Runs one submission on every shape and both kinds of inputs; says what came out."""
    from nvfp4.emulation import install
    from reference import check_implementation, generate_full_range_input, generate_input

    said: list[str] = []
    with install(check=check) as emulated:
        spec = importlib.util.spec_from_file_location("submission", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        cases = [
            (kind, generate(*shape, seed=SEED), shape)
            for shape in shapes
            for kind, generate in (
                ("contest", generate_input),
                ("full", generate_full_range_input),
            )
        ]
        stub_cuda()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                spec.loader.exec_module(module)
        except BaseException as error:
            return f"import: {_short(error)}"
        for kind, data, shape in cases:
            emulated.clear()
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    output = module.custom_kernel(data)
                passed, message = check_implementation(data, output)
                result = "ok" if passed else f"MISMATCH {_first_line(message)}"
            except BaseException as error:
                result = _short(error)
            if result != "ok" and result not in "; ".join(said):
                said.append(f"{kind} {'x'.join(map(str, shape))}: {result}")
    return "; ".join(said) or "ok"


def _first_line(text: object) -> str:
    return " ".join(str(text).split())[:220]


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _work(sender: Any, path: Path, check: bool, shapes: Any) -> None:
    sender.send(run_entry(path, check, shapes))


def result_of(entry: Entry, check: bool, limit_s: float, shapes: Any = SHAPES) -> str:
    """run_entry in a process of its own, killed after limit_s."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_work, args=(sender, entry.path, check, shapes))
    process.start()
    sender.close()
    try:
        return str(receiver.recv()) if receiver.poll(limit_s) else "TIMEOUT"
    except EOFError:
        process.join()
        return f"DIED {process.exitcode}"
    finally:
        process.kill()
        process.join()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true", help="with all of the emulator's checks")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT_S, help="seconds a submission")
    options = parser.parse_args()
    torch.set_num_threads(1)
    import cutlass.cute  # noqa: F401  (imported once, before the processes part)

    for entry in load():
        folder = entry.name.split("/")[0]
        if options.names and not {entry.name, folder} & set(options.names):
            continue
        start = time.monotonic()
        result = result_of(entry, options.check, options.limit)
        seconds = time.monotonic() - start
        expected = entry.expectation.verdict
        print(f"{entry.name:44} {expected:4} {seconds:5.1f}s  {result}", flush=True)


if __name__ == "__main__":
    main()
