"""Runs one kernel of this corpus, and says whether the judge was right about it."""

import importlib.util
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from corpus import Submission, marked_lines
from judged import apart

from nvfp4.emulation import Emulation, install_stand_in

LIMIT_S = 120.0

PLACELESS = frozenset({"mismatch", "deadlock", "runaway_kernel"})
"""What need not name a line: the output shows it, or where threads hang."""


@dataclass
class Verdict:
    """Of each code (of a fault or a finding, `mismatch` for a wrong output) the lines of the file
    that were named, and all messages.
    """

    lines: dict[str, set[int]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def add(self, code: str, lines: set[int], message: str) -> None:
        self.lines.setdefault(code, set()).update(lines)
        self.messages.append(f"{code} at {sorted(lines)}: {message}")


def complaint(case: Submission, got: Verdict) -> str | None:
    """How a verdict differs from what is true of a case; None if it does not."""
    codes, lines = expectation(case)
    if not codes:
        return "blamed: " + "\n".join(got.messages) if got.lines else None
    found = codes & set(got.lines)
    if not found:
        return f"missed {sorted(codes)}: " + ("\n".join(got.messages) or "nothing found")
    if lines and not any(code in PLACELESS or got.lines[code] & lines for code in found):
        return f"not at {sorted(lines)}: " + "\n".join(got.messages)
    return None


def expectation(case: Submission) -> tuple[frozenset[str], frozenset[int]]:
    """The codes, one of which catches what is wrong, and the lines, one of which must be named.

    Both are empty for a right one. Raises ValueError.
    """
    verdict, *codes = re.split(r"[ |]", case.directives["expect"])
    if verdict not in ("right", "wrong") or (verdict == "wrong") != bool(codes):
        raise ValueError(case.directives["expect"])
    return frozenset(codes), frozenset(marked_lines(case.source))


def judge(path: Path) -> Verdict:
    """The verdict on one file, in this process."""
    verdict = Verdict()
    torch.manual_seed(1)
    emulation = install_stand_in(path)
    with emulation:
        emulation.begin_call(time.monotonic() + LIMIT_S)
        try:
            _run(path, emulation, verdict)
        except Exception as error:
            name = getattr(error, "verdict_code", type(error).__name__)
            code = getattr(error, "code", name.rpartition(".")[2])
            text = f"{type(error).__name__}: {error}"
            verdict.add(code, _named_lines(text, path), text)
        for launch in emulation.launches:
            for finding in launch.to_dict()["findings"]:
                places = [finding, *finding["related"]]
                text = " ".join(
                    f"{Path(each['file'] or '').name}:{each['line']}" for each in places
                )
                verdict.add(finding["code"], _named_lines(text, path), finding["message"])
    return verdict


def _run(path: Path, emulation: Emulation, verdict: Verdict) -> None:
    spec = importlib.util.spec_from_file_location("submission", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    out, expected = module.run()
    got = emulation.output(out).double()
    if not torch.equal(got, expected.double()):
        wrong = int((got != expected.double()).sum())
        verdict.add("mismatch", set(), f"{wrong} of {got.numel()} elements are wrong")


def _named_lines(text: str, path: Path) -> set[int]:
    """Lines of a file that a message names, be it as lines of its CUDA text."""
    lines = path.read_text().splitlines()
    start = lines.index('SOURCE = r"""') if 'SOURCE = r"""' in lines else 0
    cuda = {start + int(line) for line in re.findall(r"kernel\.cu:(\d+)", text)}
    return cuda | {int(line) for line in re.findall(rf"{re.escape(path.name)}:(\d+)", text)}


def judge_apart(path: Path) -> Verdict:
    """``judge`` in a process of its own; see `judged.prepare`."""
    try:
        return apart(2 * LIMIT_S, judge, path)
    except TimeoutError as error:
        return Verdict({"timeout": set()}, [str(error)])
    except EOFError as error:
        return Verdict({"crash": set()}, [str(error)])
