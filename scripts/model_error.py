"""How far predicted times are from measured ones: ladder, submission.py, Triton, tests/field.

    python -m scripts.model_error count COUNTS                     without a GPU, some minutes
    python -m scripts.model_error measure MEASURED.json            on a GPU, a few minutes
    python -m scripts.model_error table COUNTS MEASURED.json ...   without a GPU
    python -m scripts.model_error strangers COUNTS CLONE ...       B200, public_times.json

`count` emulates every kernel at the contest's three shapes and keeps in the folder COUNTS what the
model needs, as code for the B200 and as code for Hopper. `measure` times them with the judge's
timer, after both flushes. `table` predicts from the counts, with the constants as they are now.
`strangers` does the same for the files of public_times.json, from clones of their repositories.
"""

import argparse
import fcntl
import functools
import json
import math
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHAPES = [(7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4)]
ARCHS = {"sm_100a": ("B200",), "sm_90a": ("H100", "H200")}
CALLS = 60
WARM_UP = 5
JOBS = 12
LIMIT_S = 420
PUBLIC = Path(__file__).with_name("public_times.json")
TRITON = "benchmarks/triton_gemv.py"
TILING = 4
"""Of its tilings, for all shapes."""
FIELD = [
    *("cuda/block_reduce", "cuda/byte_perm", "cuda/intrinsics", "pipelines/cp_async_two_stages"),
    *("pipelines/tma_swizzled_128_bytes", "shared/lookup_table", "template/pointers"),
    *("warps/shared_tree", "triton/warp_per_row", "triton/masked_rows"),
]


def files() -> list[str]:
    """What is measured, by its path in the repository."""
    ladder = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("ladder/*/*.py"))
    own = ["submission.py", TRITON]
    return [*own, *ladder, *(f"tests/field/{name}.py" for name in FIELD)]


def shape_name(shape: tuple[int, int, int]) -> str:
    """As results name it."""
    return "x".join(map(str, shape))


def load(path: str) -> Any:
    """The function that a call is, on a tuple of tensors."""
    if path == TRITON:
        from benchmarks.triton_gemv import prepare, tilings

        return lambda data: prepare(data, tilings[TILING])()
    from nvfp4.tuner.space import load_submission

    return load_submission(ROOT / path).custom_kernel


# Counting, without a GPU


def count_one(path: str, arch: str, target: Path) -> None:
    """Emulates the kernels of one file."""
    from nvfp4 import emulator
    from nvfp4.capture import standin
    from nvfp4.emulation import install_stand_in
    from nvfp4.model.counting import counted
    from nvfp4.problems.nvfp4_gemv import reference

    emulation = install_stand_in(ROOT / path, arch)
    with emulation:
        call = load(path)
        launches: list[Any] = []
        run = emulator.run

        def noted(launch: Any, *arguments: Any, **named: Any) -> Any:
            report = run(replace(launch, samples=True), *arguments, **named)
            if not launch.trial:
                launches.append(counted(launch, report))
            return report

        emulator.run = noted
        found = {}
        for shape in SHAPES:
            data = reference.generate_input(*shape, 1111)
            launches.clear()
            call(tuple(standin.adopt(each) for each in data))
            found[shape] = list(launches)
    target.write_bytes(pickle.dumps(found))


def count(folder: Path, jobs: int, paths: list[str], archs: list[str]) -> None:
    """Some files, each as code of these kinds; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)

    def one(work: tuple[str, str]) -> str:
        path, arch = work
        target = counts_of(folder, path, arch)
        if target.exists():
            return f"{path} {arch}: known"
        words = [sys.executable, "-m", "scripts.model_error", "count-one", path, arch, str(target)]
        ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        return f"{path} {arch}: {'done' if not ended.returncode else last[:200]}"

    todo = [(path, arch) for arch in archs for path in paths]
    with ThreadPoolExecutor(jobs) as pool:
        for said in pool.map(one, todo):
            print(said, flush=True)


def counts_of(folder: Path, path: str, arch: str) -> Path:
    """Where they are kept."""
    name = path.removeprefix("/").removesuffix(".py").replace("/", "_").replace(":", "_")
    return folder / f"{name}.{arch}.pickle"


# Measuring, on a GPU


def measure_one(path: str, lock: Path, target: Path) -> None:
    """Times one file; what others do on the GPU waits meanwhile."""
    import torch

    from nvfp4.gpu.timing import CudaTimer, flushes
    from nvfp4.problems.nvfp4_gemv import reference
    from nvfp4.records.options import Options
    from nvfp4.worker.fitting import Fitting

    device = torch.device("cuda", 0)
    reference.default_device = lambda: torch.device("cpu")
    inputs = {shape: on_gpu(reference.generate_input(*shape, 1111)) for shape in SHAPES}
    fitting = Fitting(Options())
    loaded: list[Any] = []

    def carry_out() -> None:
        loaded[:] = [load(path)]
        for data in inputs.values():
            loaded[0](data)
        torch.cuda.synchronize()

    fitting.natively_first(carry_out, carry_out)
    call = loaded[0]
    found: dict[str, Any] = {"rewritten": bool(fitting.kernels()), "times_us": {}}
    with locked(lock):
        for flush in ("contest", "clean"):
            timer = CudaTimer(device, flushes[flush])
            times: dict[str, Any] = {}
            for shape, data in inputs.items():
                timed = functools.partial(call, data)
                taken = [timer.time(timed)[1] for _ in range(WARM_UP + CALLS)]
                good = sorted(each.call_ns / 1e3 for each in taken[WARM_UP:] if not each.late)
                if good:
                    times[shape_name(shape)] = {
                        "median": statistics.median(good),
                        "mean": statistics.fmean(good),
                        "calls": len(good),
                    }
            found["times_us"][flush] = times
            del timer
            torch.cuda.empty_cache()
    target.write_text(json.dumps(found))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Held by one process at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def on_gpu(data: Any) -> tuple[Any, ...]:
    """Copies with the same strides; FP4 and FP8 move as bytes."""
    import torch

    def moved(tensor: Any) -> Any:
        raw = tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor
        return raw.cuda().view(tensor.dtype)

    return tuple(map(moved, data))


def measure(out: Path, jobs: int, limit_s: float) -> None:
    """All files: they compile side by side, and are timed one after the other."""
    folder = Path(tempfile.mkdtemp())
    end = time.monotonic() + limit_s
    results: dict[str, Any] = {"device": device_name(), "files": {}}

    def one(path: str) -> tuple[str, dict[str, Any]]:
        target = folder / f"{path.replace('/', '_')}.json"
        words = [sys.executable, "-m", "scripts.model_error", "measure-one", path]
        left_s = end - time.monotonic()
        if left_s < 20:
            return path, {"failed": "no time was left"}
        environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder / f"build_{target.stem}")}
        try:
            ended = subprocess.run(
                [*words, str(folder / "lock"), str(target)],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=left_s,
            )
        except subprocess.TimeoutExpired:
            return path, {"failed": "no end within the limit"}
        if ended.returncode:
            return path, {"failed": ended.stderr[-600:]}
        return path, json.loads(target.read_text())

    twins = folder / "twins.json"
    words = [sys.executable, "-m", "scripts.model_error", "measure-twins", str(twins)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    results["twins_us"] = json.loads(twins.read_text()) if twins.exists() else ended.stderr[-600:]
    with ThreadPoolExecutor(jobs) as pool:
        for path, found in pool.map(one, files()):
            results["files"][path] = found
            print(path, json.dumps(found)[:400], flush=True)
            out.write_text(json.dumps(results, indent=1))


def measure_twins(target: Path) -> None:
    """Times kernels that are worse in one way, and what they are worse than; see tests/model."""
    import torch

    from nvfp4.gpu.timing import CudaTimer, flushes
    from nvfp4.retarget.driver import installed_driver
    from nvfp4.retarget.rewrite import rewrite

    sys.path.insert(0, str(ROOT / "tests" / "model"))
    from twins import TWINS, WORDS

    device = torch.device("cuda", 0)
    words = torch.zeros(WORDS, dtype=torch.int32, device=device)
    result = torch.zeros(1 << 20, dtype=torch.int32, device=device)
    addresses = [each.data_ptr().to_bytes(8, "little") for each in (words, result)]
    timer = CudaTimer(device, flushes["clean"])
    major, minor = torch.cuda.get_device_capability()
    driver = installed_driver()
    found: dict[str, list[float]] = {}
    for name, twins in TWINS.items():
        found[name] = []
        for twin in twins:
            text = rewrite(twin.text, f"sm_{major}{minor}a", driver.newest_ptx()).ptx
            kernel = driver.load(text).kernel("k", [8, 8])
            stream = torch.cuda.current_stream().cuda_stream
            grid, block = (twin.grid, 1, 1), (twin.block, 1, 1)
            timed = functools.partial(kernel.launch, grid, block, 0, addresses, stream)
            taken = [timer.time(timed)[1].call_ns / 1e3 for _ in range(WARM_UP + CALLS)]
            found[name].append(statistics.median(taken[WARM_UP:]))
    target.write_text(json.dumps(found))


def device_name() -> str:
    """Of the GPU, asked in a process of its own."""
    words = [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


# Comparing


@dataclass(frozen=True)
class Case:
    """A predicted and a measured time. kernel: whose it is."""

    kernel: str
    us: float
    measured_us: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_us / self.us


def predicted(folder: Path, model: str, path: str, arch: str, clean: bool) -> dict[str, Any]:
    """By shape, from what was counted; empty where nothing was."""
    from nvfp4.model.gpu import NoPrediction
    from nvfp4.model.prediction import GPUS, predict

    counts = counts_of(folder, path, arch)
    if not counts.exists():
        return {}
    found = {}
    for shape, launches in pickle.loads(counts.read_bytes()).items():
        try:
            found[shape_name(shape)] = predict(GPUS[model], launches, clean)
        except NoPrediction as error:
            print(f"{path}: {error}", file=sys.stderr)
    return found


def table(folder: Path, measured: list[Path]) -> None:
    """A line for each file, flush and shape; errors over all of them."""
    for source in measured:
        results = json.loads(source.read_text())
        model = next(name for name in ("B200", "H200", "H100") if name in results["device"])
        cases: list[Case] = []
        print(f"{results['device']}, predicted / measured us (ratio)")
        for path, found in results["files"].items():
            if "times_us" not in found:
                print(f"{path}: not measured")
                continue
            arch = "sm_100a" if found["rewritten"] else "sm_90a"
            for flush, times in found["times_us"].items():
                said = predicted(folder, model, path, arch, flush == "clean")
                cells = []
                for shape, taken in times.items():
                    if shape not in said:
                        cells.append("-")
                        continue
                    us, truth = said[shape].us, taken["median"]
                    cases.append(Case(path, us, truth))
                    cells.append(f"{us:.1f}/{truth:.1f} ({us / truth:.2f}) {said[shape].bound}")
                print(f"{path:40} {flush:8} {'  '.join(cells)}")
        summary(cases)
        show_twins(model, results.get("twins_us"))


def show_twins(model: str, measured: Any) -> None:
    """A line for each pair of tests/model: how much worse, predicted and measured."""
    sys.path.insert(0, str(ROOT / "tests" / "model"))
    from model_kernels import predicted as predicted_kernel
    from twins import TWINS

    for name, twins in TWINS.items() if isinstance(measured, dict) else ():
        said = [predicted_kernel(each.text, each.grid, each.block, model).us for each in twins]
        pairs = zip(said, measured[name], strict=True)
        times = "  ".join(f"{us:.2f}/{truth:.2f}" for us, truth in pairs)
        worse = said[1] / said[0], measured[name][1] / measured[name][0]
        print(f"{name:20} {times}  worse by {worse[0]:.2f}, measured {worse[1]:.2f}")


def decile(values: list[float], which: int) -> float:
    """The first or the ninth."""
    return statistics.quantiles(values, n=10, method="inclusive")[which - 1]


def held_back(cases: list[Case]) -> float:
    """The share of cases that lie between the deciles of all other kernels' cases."""
    inside = 0
    for kernel in {case.kernel for case in cases}:
        others = [case.ratio for case in cases if case.kernel != kernel]
        low, high = decile(others, 1), decile(others, 9)
        inside += sum(low <= case.ratio <= high for case in cases if case.kernel == kernel)
    return inside / len(cases)


def summary(cases: list[Case]) -> None:
    """Prints the errors over all cases, and what nvfp4/model has as `low` and `high` of a GPU."""
    if not cases:
        return
    from scripts.ladder_page import spearman

    sizes = sorted(math.expm1(abs(math.log(case.ratio))) for case in cases)
    ranks = spearman([case.us for case in cases], [case.measured_us for case in cases])
    ratios = [case.ratio for case in cases]
    bias = 1 / statistics.geometric_mean(ratios)
    print(
        f"{len(cases)} cases: median error {statistics.median(sizes):.1%}, nine in ten within "
        f"{sizes[math.ceil(0.9 * len(sizes)) - 1]:.1%}, all within {sizes[-1]:.0%}, Spearman "
        f"{ranks:.3f}; predicted over measured {bias:.3f}; measured over predicted, "
        f"first and last decile, {decile(ratios, 1):.2f} to {decile(ratios, 9):.2f}, which of the "
        f"other kernels hold {held_back(cases):.0%}"
    )


def strangers(folder: Path, clones: list[Path], jobs: int) -> None:
    """Compare predictions for files of certain commits with what their authors have recorded, with
    all rows, and without those that the history contradicts; a summary for each clone and all."""
    everything: list[Case] = []
    for clone in clones:
        everything += stranger(folder, clone, jobs)
    summary(everything)


def stranger(folder: Path, clone: Path, jobs: int) -> list[Case]:
    """The cases of one clone but the doubtful ones."""
    known = json.loads(PUBLIC.read_text())
    public = next(p for p in known if not shown_by_git(clone, p["files"][0]["commit"]).returncode)
    sources = (folder / "files").resolve()
    sources.mkdir(parents=True, exist_ok=True)
    rows = []
    for each in public["files"]:
        path = str(sources / f"{each['commit']}_{Path(each['file']).name}")
        Path(path).write_bytes(shown_by_git(clone, f"{each['commit']}:{each['file']}").stdout)
        rows.append((path, each))
    count(folder, jobs, [path for path, _ in rows], ["sm_100a"])
    cases: list[Case] = []
    doubted: set[str] = set()
    for path, each in rows:
        said = predicted(folder, "B200", path, "sm_100a", clean=False)
        cells = []
        for shape, truth in zip(public["shapes"], each["us"], strict=True):
            if shape not in said:
                cells.append(f"-/{truth:g}")
                continue
            cases.append(Case(path, said[shape].us, truth))
            cells.append(f"{said[shape].us:.1f}/{truth:g} ({said[shape].us / truth:.2f})")
        if "doubt" in each:
            doubted.add(path)
        print(f"{each['commit']} {each['file']:22} {'  '.join(cells)}  {each.get('doubt', '')}")
    summary(cases)
    certain = [case for case in cases if case.kernel not in doubted]
    summary(certain)
    return certain


def shown_by_git(clone: Path, name: str) -> subprocess.CompletedProcess[bytes]:
    """What `git show` says of an object."""
    return subprocess.run(["git", "-C", str(clone), "show", name], capture_output=True)


def main() -> int:
    """The exit code."""
    if sys.argv[1] == "count-one":
        count_one(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
        return 0
    if sys.argv[1] == "measure-one":
        measure_one(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
        return 0
    if sys.argv[1] == "measure-twins":
        measure_twins(Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["count", "measure", "table", "strangers"])
    parser.add_argument("place", type=Path)
    parser.add_argument("measured", type=Path, nargs="*")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    given = parser.parse_args()
    if given.what == "count":
        count(given.place, given.jobs or 2, files(), list(ARCHS))
    elif given.what == "strangers":
        strangers(given.place, given.measured, given.jobs or 2)
    elif given.what == "measure":
        measure(given.place, given.jobs or JOBS, given.limit_s)
    else:
        table(given.place, given.measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
