"""Whole kernels for sm_90a: recorded where CuTe DSL is, run natively, and run emulated."""

from __future__ import annotations

import ctypes
import pickle
import struct
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from scripts.fidelity.cuda_driver import Driver

KERNELS = ("shared_memory", "warp_per_row", "cp_async", "tma")
SHAPES = ((384, 7168, 2), (2432, 4608, 2))

Array = np.ndarray[Any, Any]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Recorded:
    """One launch as CuTe DSL's host code made it.

    addresses: host addresses of a, b, sfa, sfb and c, as they stand in `parameters`.
    output: the emulated c as uint16. counts: the emulator's report.
    """

    name: str
    shape: Shape
    ptx: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: list[bytes]
    addresses: list[int]
    output: Array
    counts: dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """Launches, and per shape the bytes of a, b, sfa, sfb and c."""

    launches: list[Recorded]
    inputs: dict[Shape, list[Array]]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(self))

    @staticmethod
    def load(path: Path) -> Recording:
        recording = pickle.loads(path.read_bytes())
        if not isinstance(recording, Recording):
            raise TypeError(f"{path} holds no recording")
        return recording


def record(root: Path) -> Recording:
    """Compile for sm_90a and emulate every kernel at every shape on full-range inputs."""
    sys.path[:0] = [str(root), str(root / "tests")]
    import torch

    from nvfp4.capture.cutedsl import Launch, intercept
    from nvfp4.emulator import run_ptx
    from reference import generate_full_range_input

    launched: list[tuple[Launch, dict[str, Any]]] = []

    def run(launch: Launch) -> None:
        report = run_ptx(
            launch.ptx,
            launch.kernel,
            launch.grid,
            launch.block,
            launch.parameters,
            launch.shared_bytes,
        )
        launched.append((launch, report.to_dict()))

    launches, inputs = [], {}
    with intercept(run, arch="sm_90a"):
        for shape in SHAPES:
            data = generate_full_range_input(*shape, seed=1111)
            tensors = [data[i] for i in (0, 1, 2, 3, 6)]
            inputs[shape] = [
                np.frombuffer(
                    ctypes.string_at(t.data_ptr(), t.untyped_storage().nbytes()), np.uint8
                )
                for t in tensors
            ]
            for name in KERNELS:
                data[-1].fill_(torch.nan)
                import_module(f"kernels.{name}").custom_kernel(data)
                launch, counts = launched[-1]
                launches.append(
                    Recorded(
                        name=name,
                        shape=shape,
                        ptx=launch.ptx,
                        kernel=launch.kernel,
                        grid=launch.grid,
                        block=launch.block,
                        shared_bytes=launch.shared_bytes,
                        parameters=launch.raw_parameters,
                        addresses=[t.data_ptr() for t in tensors],
                        output=data[-1].view(torch.uint16).permute(2, 0, 1).numpy().copy(),
                        counts=counts,
                    )
                )
    return Recording(launches, inputs)


def _moved(parameters: list[bytes], moves: dict[int, int]) -> list[bytes]:
    """`parameters` with every 8-byte word that is a key of `moves` replaced."""
    out = []
    for raw in parameters:
        words = bytearray(raw)
        for offset in range(0, len(raw) - 7, 4):
            (value,) = struct.unpack_from("<Q", raw, offset)
            if value in moves:
                struct.pack_into("<Q", words, offset, moves[value])
        out.append(bytes(words))
    return out


def run_natively(driver: Driver, recording: Recording) -> list[Recorded]:
    """The same launches on the device: each with the device's output, counts empty."""
    done = []
    for launch in recording.launches:
        contents = recording.inputs[launch.shape]
        addresses = [driver.allocate(array.nbytes) for array in contents]
        for address, array in zip(addresses, contents, strict=True):
            driver.upload(address, array)
        module = driver.load(launch.ptx)
        function = driver.function(module, launch.kernel, launch.shared_bytes)
        parameters = _moved(launch.parameters, dict(zip(launch.addresses, addresses, strict=True)))
        driver.launch(function, launch.grid, launch.block, parameters, launch.shared_bytes)
        output = np.empty_like(launch.output)
        driver.download(addresses[-1], output)
        driver.unload(module)
        for address in addresses:
            driver.free(address)
        done.append(replace(launch, output=output, counts={}))
    return done
