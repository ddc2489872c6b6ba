"""A problem of the format that GPU MODE uses, small, with everything that data may hold."""

from pathlib import Path

TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../utils.py"}
lang: py
description: a scaled sum
config: {main: eval.py}
tests:
  - {"rows": 4, "sizes": [3, 5], "kind": "normal", "seed": 1}
  - {"rows": 8, "sizes": [2, 16], "kind": "normal", "seed": 2}
benchmarks:
  - {"rows": 64, "sizes": [7], "kind": "normal", "seed": 3}
"""

UTILS = """
import torch

def match_reference(data, output, reference, rtol=1e-5, atol=1e-8):
    for got, want in zip(output, reference(data)):
        if got.shape != want.shape:
            return False, "SIZE MISMATCH"
        wrong = ((got - want).abs() > atol + rtol * want.abs()).nonzero().tolist()
        if wrong:
            return False, f"ERROR AT {tuple(wrong[0])}"
    return True, ""

def make_match_reference(reference, **options):
    def wrapped(data, output):
        return match_reference(data, output, reference, **options)
    return wrapped
"""

REFERENCE = """
import torch
from task import scale
from utils import make_match_reference

def ref_kernel(data):
    pairs, options, counts = data
    for (x, y, out), count in zip(pairs, counts.tolist()):
        assert len(x) == count
        out[...] = options["scale"] * x + y
    return [out for _, _, out in pairs]

def generate_input(rows, sizes, kind, seed):
    assert kind == "normal"
    draw = torch.Generator(device="cuda")
    draw.manual_seed(seed)
    pairs = []
    for size in sizes:
        both = torch.randn(2, rows, size, device="cuda", generator=draw)
        pairs.append((both[0], both[1].T.contiguous().T, torch.empty(rows, size, device="cuda")))
    return pairs, {"scale": scale, "name": kind}, torch.tensor([rows] * len(sizes))

check_implementation = make_match_reference(ref_kernel, rtol=1e-4, atol=1e-6)
"""

RIGHT = """
def custom_kernel(data):
    pairs, options, counts = data
    assert counts.device.type == "cpu" and options["name"] == "normal"
    for x, y, out in pairs:
        assert x.is_cuda and y.stride() == (1, len(y))
        out[...] = options["scale"] * x + y
    return [out for _, _, out in pairs]
"""


def make_problem(folder: Path, **changes: str) -> Path:
    """Write the folder of the problem, and what lies above it. changes: of its files, by stem."""
    texts = {"task": "scale = 3.0\n", "reference": REFERENCE}
    own = folder / "problems" / "mine" / "scaled_py"
    own.mkdir(parents=True)
    (own / "task.yml").write_text(changes.pop("yml", TASK))
    (own.parent / "utils.py").write_text(UTILS)
    listed = "problems:\n  - {directory: mine/scaled_py, name: scaled_v2}\n"
    (folder / "problems" / "mine.yaml").write_text(listed)
    for name, text in {**texts, **changes}.items():
        (own / f"{name}.py").write_text(text)
    return own
