"""Whole submissions on a GPU and emulated: outputs compared bit by bit.

    python -m scripts.submissions OUT.json FILE ...
    python -m scripts.submissions OUT.json --retarget [FILE ...]

Each file is imported twice, each time in a process of its own: on the GPU, and on the stand-in with
the GPU hidden. Both get the ten contest shapes with the contest's inputs and with full-range ones.
Without --retarget the emulated code is sm_90a's and the GPU compiles natively. With it both run
code for sm_100a, which is rewritten for the GPU. Then the files, or those of RETARGETED, are judged
as well, and must pass all tests, have a time and list what was rewritten.
"""

from __future__ import annotations

import argparse
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

from nvfp4.tuner.space import load_submission

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 540.0
JOBS = 12
TESTS = 20
RETARGETED = [
    *("submission.py", "tests/kernels/packed.py", "tests/field/template/pointers.py"),
    *("tests/field/cuda/wide_loads.py", "tests/field/cuda/ptx_pointers.py"),
    *("tests/field/cuda/large_shared.py", "tests/field/triton/inline_assembly.py"),
]
"""What is judged with --retarget; packed.py has conversions that sm_100 alone has."""


def outputs(path: Path, kind: str, arch: str) -> list[torch.Tensor]:
    """c of each case, [m, 1, l] on the CPU, for both kinds of inputs.

    kind: native, retargeted or emulated.
    """
    from nvfp4.contract import reference

    reference.default_device = lambda: torch.device("cpu")
    if kind == "retargeted":
        from nvfp4 import retargeting
        from nvfp4.retarget import extensions, target_of
        from nvfp4.retarget.translator import Translator

        asked = torch.cuda.get_device_capability
        extensions.start("always", arch, asked)
        retargeting.install(Translator(str(target_of(asked()))), arch)
    if kind == "emulated":
        from nvfp4 import emulation

        standin = emulation.install_stand_in(path, arch, check=False)
        there, back = standin.adopt, standin.host_view
    else:
        there, back = _on_gpu, torch.Tensor.cpu
    module = load_submission(path)
    found = []
    for generate in (reference.generate_input, reference.generate_full_range_input):
        for case in yaml.safe_load((ROOT / "task.yml").read_text())["tests"]:
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
    command = [sys.executable, "-m", "scripts.submissions", "--child", kind, arch]
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


def judged(path: str, *options: str) -> dict[str, Any]:
    """What `nvfp4 eval` says of a file, as far as it matters here."""
    command = [sys.executable, "-m", "nvfp4", "eval", path, *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        return {"passed": False, "error": (done.stdout + done.stderr)[-1500:]}
    failures = [each["message"] for each in (*verdict["tests"], *verdict["benchmarks"])]
    return {
        "passed": verdict["passed"],
        "tests": sum(test["status"] == "pass" for test in verdict["tests"]),
        "geomean_us": verdict["score"]["geomean_us"],
        "retargeted": verdict["device"]["retargeted"][:2],
        "message": next(filter(None, failures), None),
    }


def passes_rewritten(path: str, result: dict[str, Any]) -> bool:
    """Whether the judge passes a file whose code is rewritten; its verdict goes into the result."""
    retarget = "always" if path == "submission.py" else "auto"
    result["judged"] = verdict = judged(path, "--retarget", retarget, "--arch", "sm_100a")
    timed = verdict.get("tests") == TESTS and verdict["geomean_us"] and verdict["retargeted"]
    return bool(verdict["passed"] and timed)


def main() -> int:
    """Compares the files and writes a JSON list; 1 where --retarget finds what must not be."""
    if sys.argv[1] == "--child":
        kind, arch, path, target = sys.argv[2:]
        torch.save(outputs(Path(path), kind, arch), target)
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--retarget", action="store_true")
    given = parser.parse_intermixed_args()
    names = given.files or RETARGETED
    files = [Path(each).resolve() for each in names]
    if not given.files:
        folder = given.out.resolve().parent
        write = [sys.executable, "tests/corpus.py", str(folder), "tests/kernels"]
        subprocess.run(write, cwd=ROOT, check=True)
        kernels = sorted(set(folder.glob("kernels/*.py")) - {folder / "kernels/packed.py"})
        files += [ROOT / "ladder/cute/03_block_sum.py", *kernels]
    arch = "sm_100a" if given.retarget else "sm_90a"
    results, good = [], True
    for result in compared(files, arch, given.retarget):
        good = good and result.get("same") == TESTS
        results.append(result)
        print(json.dumps(result)[:600], flush=True)
        given.out.write_text(json.dumps(results, indent=1))
    if not given.retarget:  # atomics add in no order
        return 0
    for name, result in zip(names, results, strict=False):  # nothing runs beside what is timed
        good = passes_rewritten(name, result) and good
        print(json.dumps({"file": name, "judged": result["judged"]}), flush=True)
        given.out.write_text(json.dumps(results, indent=1))
    never = judged("tests/kernels/packed.py", "--retarget", "never")
    print(json.dumps({"never rewritten": never}))
    return 0 if good and not never["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
