"""The executor's sessions: one leaves nothing to the next."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nvfp4.records.launch_records import outbox_bytes
from nvfp4.records.messages import Execute, OpenSession

if sys.platform != "linux":
    pytest.skip("only Linux maps fixed addresses safely", allow_module_level=True)

from nvfp4.executor.__main__ import Execution

base, page_bytes = 0x5E00_0000_0000, 4096

counts_calls = """
.version 8.8
.target sm_100a
.address_size 64
.global .align 4 .u32 calls = 5;
.visible .entry k(.param .u64 out)
{
    .reg .b16 %rs<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [calls];
    add.u32 %r2, %r1, 1;
    st.global.u32 [calls], %r2;
    cvt.u16.u32 %rs1, %r2;
    st.global.u16 [%rd1], %rs1;
    ret;
}
"""


@pytest.fixture
def execution() -> Iterator[Execution]:
    begun = Execution()
    yield begun
    begun._memory.drop()


def session(execution: Execution, text: str) -> None:
    """Begins one, whose outbox holds a text."""
    fd = os.memfd_create("outbox")
    os.write(fd, text.encode())
    os.ftruncate(fd, outbox_bytes)
    execution.open(OpenSession("", "submission.py", ""), fd)


def call(text: str, new: bool) -> dict[str, Any]:
    """A record of one launch. new: its text is handed over."""
    launch: dict[str, Any] = {
        "text": 0,
        "kernel": "k",
        "grid": [1, 1, 1],
        "block": [1, 1, 1],
        "cluster": [1, 1, 1],
        "stream": 0,
        "programmatic": False,
        "shared_bytes": 0,
        "parameters": [base.to_bytes(8, "little").hex()],
        "notes": [],
    }
    nothing: dict[str, Any] = {"writes": [], "variables": []}
    steps = [{**nothing, "regions": [], "launch": launch}]
    steps += [{**nothing, "regions": None, "launch": None}]
    texts = [[len(text), 0]] if new else []
    return {
        "base": base,
        "texts": texts,
        "steps": steps,
        "output": base,
        "dtype": "float16",
        "strides": [2, 2, 2],
    }


def output(execution: Execution, text: str, new: bool = True) -> int:
    """What a call of one launch leaves in c, as a number."""
    fd = os.memfd_create("buffers")
    os.ftruncate(fd, 2 * page_bytes)
    kept = os.dup(fd)
    executed = execution.execute(
        Execute(
            call=call(text, new),
            buffers=[["c", 0, page_bytes, True, [2048], [2], [["row", "m"]]]],
            mapped_bytes=2 * page_bytes,
            place=page_bytes,
            shape=[1, 1],
            itemsizes={"float16": 2},
            check=False,
            orders=1,
            keep="",
            deadline=time.monotonic() + 60,
        ),
        fd,
    )
    assert executed.fault == ""
    try:
        return int.from_bytes(os.pread(kept, 2, page_bytes), "little")
    finally:
        os.close(kept)


def test_a_variable_lasts_for_a_session_and_no_longer(execution: Execution) -> None:
    session(execution, counts_calls)
    assert [output(execution, counts_calls), output(execution, counts_calls, new=False)] == [6, 7]
    session(execution, counts_calls)
    assert output(execution, counts_calls) == 6


def test_a_session_takes_so_much_ptx_and_no_more(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nvfp4.executor.__main__._most_text_bytes", 2 * len(counts_calls))
    session(execution, counts_calls)
    for _ in range(2):
        assert output(execution, counts_calls) > 5
    with pytest.raises(AssertionError, match="there is too much PTX"):
        output(execution, counts_calls)
