"""Whole submissions on a GPU and emulated: outputs compared bit by bit.

python -m scripts.fidelity.submissions OUT.json FILE ...

Emulated for sm_90a; `compared` also takes another architecture, whose code the GPU runs rewritten.

Each file is imported twice, each time in a process of its own: on the GPU, and on the stand-in with
the GPU hidden. Both get the ten contest shapes with the contest's inputs and with full-range ones.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 540.0
JOBS = 12


def cases() -> list[dict[str, int]]:
    """The contest's tests."""
    listed: list[dict[str, int]] = yaml.safe_load((ROOT / "task.yml").read_text())["tests"]
    return listed


def outputs(path: Path, kind: str, arch: str) -> list[torch.Tensor]:
    """c of each case, [m, 1, l] on the CPU, for both kinds of inputs.

    kind: native, retargeted or emulated.
    """
    from nvfp4.contract import reference

    reference.default_device = lambda: torch.device("cpu")
    if kind == "retargeted":
        from nvfp4 import retargeting
        from nvfp4.retarget import extensions

        extensions.start("always", arch, torch.cuda.get_device_capability)
        retargeting.install(arch)
    if kind == "emulated":
        from nvfp4 import emulation

        standin = emulation.install_stand_in(path, arch, check=False)
        there, back = standin.adopt, standin.host_view
    else:
        there, back = _on_gpu, torch.Tensor.cpu
    spec = importlib.util.spec_from_file_location("submission", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = []
    for generate in (reference.generate_input, reference.generate_full_range_input):
        for case in cases():
            data = generate(**case)
            output = module.custom_kernel(tuple(there(tensor) for tensor in data))
            found.append(back(output).clone())
    return found


def _on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides; FP4 and FP8 move as bytes."""
    raw = tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor
    return raw.cuda().view(tensor.dtype)


def _run(kind: str, path: Path, folder: Path, arch: str) -> dict[str, Any]:
    """Outputs of one file in a process of its own; why there are none."""
    target = folder / f"{path.parent.name}_{path.stem}_{kind}.pt"
    environment = dict(os.environ)
    if kind == "emulated":
        environment |= {"CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(folder / "cache")}
    else:
        environment["TORCH_EXTENSIONS_DIR"] = str(folder / f"{kind}_{path.stem}")
        if kind == "native":  # their flags name the B200's architecture
            here = folder / f"here_{path.parent.name}" / path.name
            here.parent.mkdir(exist_ok=True)
            here.write_text(path.read_text().replace("100a", "90a"))
            path = here
    command = [sys.executable, "-m", "scripts.fidelity.submissions", "--child", kind, arch]
    began = time.monotonic()
    try:
        ended = subprocess.run(
            [*command, str(path), str(target)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=ROOT,
        )
        said = ended.stderr[-1500:] if ended.returncode else ""
    except subprocess.TimeoutExpired:
        said = f"no end within {LIMIT_S:.0f} s"
    return {"said": said, "seconds": round(time.monotonic() - began, 1), "target": str(target)}


def compare(path: Path, native: dict[str, Any], emulated: dict[str, Any]) -> dict[str, Any]:
    """How many of the outputs have the same bits."""
    result: dict[str, Any] = {"file": f"{path.parent.name}/{path.name}"}
    result["seconds"] = {"device": native["seconds"], "emulated": emulated["seconds"]}
    for kind, ended in (("device", native), ("emulated", emulated)):
        if ended["said"]:
            result["failed"] = f"{kind}: {ended['said']}"
            return result
    pairs = list(zip(torch.load(native["target"]), torch.load(emulated["target"]), strict=True))
    same = [torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs]
    result |= {"cases": len(same), "same": sum(same)}
    if not all(same):
        result["different_elements"] = [
            int((a.view(torch.int16) != b.view(torch.int16)).sum()) for a, b in pairs
        ]
    return result


def compared(files: list[Path], arch: str, retargeted: bool) -> Iterator[dict[str, Any]]:
    """The comparison of each file."""
    on_device = "retargeted" if retargeted else "native"
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(JOBS) as pool:
        started = [
            [pool.submit(_run, kind, path, Path(name), arch) for kind in (on_device, "emulated")]
            for path in files
        ]
        for path, pair in zip(files, started, strict=True):
            yield compare(path, *(each.result() for each in pair))


def main() -> None:
    """Compares the files and writes a JSON list."""
    if sys.argv[1] == "--child":
        kind, arch, path, target = sys.argv[2:]
        torch.save(outputs(Path(path), kind, arch), target)
        return
    out, files = Path(sys.argv[1]), [Path(each).resolve() for each in sys.argv[2:]]
    results = []
    for result in compared(files, "sm_90a", retargeted=False):
        results.append(result)
        print(json.dumps(result)[:600], flush=True)
        out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
