"""Whole kernels for sm_90a: recorded where CuTe DSL is, with what the emulator makes of them."""

from __future__ import annotations

import ctypes
import pickle
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nvfp4 import emulator
from nvfp4.records.launch import Launch, ListedMemory
from nvfp4.tuner.space import Shape, load_submission
from scripts.fidelity.cuda_driver import Driver

KERNELS = ("shared_memory", "warp_per_row", "cp_async", "tma")
SHAPES = ((384, 7168, 2), (2432, 4608, 2))
RECORDED = Path("build", "kernels.pickle")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Recorded:
    """One launch as CuTe DSL's host code made it.

    addresses: host addresses of a, b, sfa, sfb and c, as they stand in the launch's parameters.
    output: the emulated c as uint16. counts: the emulator's report.
    """

    name: str
    shape: Shape
    launch: Launch
    addresses: list[int]
    output: Array
    counts: dict[str, Any]

    @property
    def label(self) -> str:
        """The kernel and m x k x l."""
        return f"{self.name} {'x'.join(map(str, self.shape))}"


@dataclass(frozen=True)
class Recording:
    """Launches, and for each shape the bytes of a, b, sfa, sfb and c."""

    launches: list[Recorded]
    inputs: dict[Shape, list[Array]]

    def save(self, path: Path) -> None:
        """Writes a pickle."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(self))

    @staticmethod
    def load(path: Path) -> Recording:
        """Reads what `save` wrote. Raises TypeError for another pickle."""
        recording = pickle.loads(path.read_bytes())
        if not isinstance(recording, Recording):
            raise TypeError(f"{path} holds no recording")
        return recording


def record() -> Recording:
    """Compiles every kernel for sm_90a and emulates it at every shape on full-range inputs."""
    import torch

    from nvfp4.capture.cutedsl import intercept
    from nvfp4.capture.torch_memory import ProcessMemory
    from nvfp4.contract.reference import generate_full_range_input

    launched: list[tuple[Launch, dict[str, Any]]] = []

    def run(launch: Launch) -> None:
        counts = emulator.run(launch).to_dict()
        launched.append((replace(launch, memory=ListedMemory()), counts))

    launches, inputs = [], {}
    with intercept(run, "sm_90a", ProcessMemory()):
        submissions = [load_submission(Path("tests", "kernels", f"{name}.py")) for name in KERNELS]
        for shape in SHAPES:
            data = generate_full_range_input(*shape, seed=1111)
            tensors = [data[i] for i in (0, 1, 2, 3, 6)]
            addresses = [tensor.data_ptr() for tensor in tensors]
            sizes = [tensor.untyped_storage().nbytes() for tensor in tensors]
            inputs[shape] = [
                np.frombuffer(ctypes.string_at(*each), np.uint8)
                for each in zip(addresses, sizes, strict=True)
            ]
            for name, submission in zip(KERNELS, submissions, strict=True):
                data[-1].fill_(torch.nan)
                submission.custom_kernel(data)
                launch, counts = launched[-1]
                output = data[-1].view(torch.uint16).permute(2, 0, 1).numpy().copy()
                launches.append(Recorded(name, shape, launch, addresses, output, counts))
    return Recording(launches, inputs)


def _moved(parameter: bytes, moves: dict[int, int]) -> bytes:
    """A parameter with every 8-byte word that is a key of `moves` replaced."""
    words = bytearray(parameter)
    for offset in range(0, len(parameter) - 7, 4):
        (value,) = struct.unpack_from("<Q", parameter, offset)
        if value in moves:
            struct.pack_into("<Q", words, offset, moves[value])
    return bytes(words)


def run_on_device(driver: Driver, recording: Recording, recorded: Recorded) -> Array:
    """The device's c for a recorded launch, as `Recorded.output`."""
    launch, contents = recorded.launch, recording.inputs[recorded.shape]
    output = np.empty_like(recorded.output)
    with driver.arrays(contents[:-1], [output]) as addresses, driver.module(launch.ptx) as module:
        moves = dict(zip(recorded.addresses, addresses, strict=True))
        driver.launch(
            driver.function(module, launch.kernel, launch.shared_bytes),
            launch.grid,
            launch.block,
            [_moved(parameter, moves) for parameter in launch.parameters],
            launch.shared_bytes,
        )
    return output
