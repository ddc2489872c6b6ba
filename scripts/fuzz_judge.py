"""Feeds the judge's parsers with bytes that a coverage-guided fuzzer makes.

    pip install atheris
    python -m scripts.fuzz_judge cases -max_total_time=60
    python -m scripts.fuzz_judge task|lines|messages|counts [libFuzzer options]

Run it from the repository root. A parser may refuse its input by the error it declares; any other
exception is a finding, and libFuzzer keeps the input. ``tests/test_fuzz.py`` does the same with
examples that need no fuzzer, and checks verdicts as well.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import pathlib
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

atheris: Any = importlib.import_module("atheris") if importlib.util.find_spec("atheris") else None

line = "m: 128; k: 256; l: 1; seed: 1111"


def instrumented() -> contextlib.AbstractContextManager[Any]:
    """Makes the parsers that are imported inside report their coverage to the fuzzer."""
    ours = ["cases", "channel", "nvfp4"]
    return atheris.instrument_imports(include=ours) if atheris else contextlib.nullcontext()


with instrumented():
    from nvfp4.cli.b200 import read_counts
    from nvfp4.cli.judging.bot import ProcessResult
    from nvfp4.cli.problem import ProblemError, load_problem
    from nvfp4.cli.verdict import (
        Submission,
        Verdict,
        read_benchmark,
        read_confinement,
        read_device,
        read_test,
    )
    from nvfp4.judge.cases import CaseFileError, read_cases
    from nvfp4.judge.emulated_counts import total_counts
    from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout

folder = pathlib.Path(tempfile.gettempdir(), f"fuzz-judge-{os.getpid()}")


def cases(data: bytes) -> None:
    """A case file."""
    path = folder / "cases.txt"
    path.write_bytes(data)
    with contextlib.suppress(CaseFileError):
        assert read_cases(path, 7)


def task(data: bytes) -> None:
    """task.yml."""
    (folder / "task.yml").write_bytes(data)
    with contextlib.suppress(ProblemError):
        load_problem(folder)


def lines(data: bytes) -> None:
    """The result pipe; after a failed test nothing can pass."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"test.0.status: fail\n" + data[:60_000])
    os.close(write_fd)
    ended = ProcessResult(0, "")
    ended.take_all(read_fd, time.monotonic() + 5)
    os.close(read_fd)
    got = ended.values
    verdict = Verdict(Submission("", ""), read_device(got), read_confinement(got))
    verdict.tests = [read_test(got, 0, line)]
    verdict.benchmarks = [read_benchmark(got, 0, line)]
    json.dump(verdict.as_json(), io.StringIO(), allow_nan=False)
    assert not verdict.passed


def messages(data: bytes) -> None:
    """Messages of a worker."""
    ours, theirs = socket.socketpair()
    theirs.sendall(data[:60_000])
    theirs.close()
    channel = Channel(ours)
    while True:
        try:
            message, _ = channel.receive(1)
        except BadMessage:
            continue
        except (ChannelClosed, ChannelTimeout):
            break
        assert isinstance(message, dict)
    channel.close()


def counts(data: bytes) -> None:
    """The counts that a worker reports of its launches, if they are JSON at all."""
    launches = None
    with contextlib.suppress(ValueError, RecursionError):
        launches = json.loads(data)
    read_counts(json.dumps(total_counts(launches), allow_nan=False), 100)
    read_counts(data.decode("utf-8", "replace"), 100)


targets: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (cases, task, lines, messages, counts)
}

seeds = {
    "cases": f"{line}\n{line}; inputs: full\n",
    "task": "files: [{name: eval.py, source: eval.py}]\n"
    "tests: [{m: 1, k: 64, l: 1, seed: 1}]\nbenchmarks: []\n",
    "lines": "test.0.status: pass\nbenchmark.0.status: pass\nbenchmark.0.runs: 5\n"
    'benchmark.0.mean: 5e3\nbenchmark.0.emulation: {"sectors_distinct": 5}\ndevice.kind: cpu\n',
    "messages": '{"id": 1, "call_ns": 1.5}\n{"failure": "cuda"}\n',
    "counts": '[{"sectors_distinct": 5, "warp_instructions": {"ld": 2}, "extrapolated": true}]',
}
"""What the fuzzer starts from: valid input."""


def main(arguments: list[str]) -> int:
    """Fuzzes one target until a finding, or until the limit that libFuzzer is given."""
    if len(arguments) < 2 or arguments[1] not in targets:
        print(f"usage: fuzz_judge {'|'.join(targets)} [libFuzzer options]", file=sys.stderr)
        return 2
    if atheris is None:
        print("error: atheris is not installed\nhint: pip install atheris", file=sys.stderr)
        return 2
    folder.mkdir()
    (folder / "eval.py").touch()
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "seed").write_text(seeds[arguments[1]], encoding="utf-8")
    atheris.Setup([arguments[0], str(corpus), *arguments[2:]], targets[arguments[1]])
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
