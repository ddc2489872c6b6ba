"""Random answers of a worker: each is read as what it is, or refused."""

import json
import math
import os
import socket
import time
from typing import Any

from fuzzed import counts, json_values
from hypothesis import given, settings
from hypothesis import strategies as st

from nvfp4.cli.b200 import read_counts
from nvfp4.gpu.timing import CallTime
from nvfp4.judge.clock.timing_checks import read_time
from nvfp4.judge.emulated_counts import total_counts
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout
from nvfp4.records.messages import Called, unpack


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"{", b"}", b'"id"', b":", b"1", b"\n", b"NaN", b"[" * 9999, b"{}\n"]),
            json_values.map(lambda value: json.dumps(value).encode() + b"\n"),
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_whatever_is_received_is_an_object_or_a_declared_error(
    pieces: list[bytes], closed: bool
) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        for piece in pieces:
            theirs.sendall(piece)
        if closed:
            theirs.close()
        start = time.monotonic()
        for _ in range(len(pieces) + 1):
            try:
                message, fd = channel.receive(0.01)
            except BadMessage:
                continue
            except (ChannelClosed, ChannelTimeout):
                break
            assert isinstance(message, dict)
            assert fd is None
        assert time.monotonic() - start < 20
    channel.close()


def test_descriptors_from_a_worker_are_not_kept() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs, open(os.devnull, "rb") as something:
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else 0
        for _ in range(50):
            socket.send_fds(theirs, [b"{}\n"], [something.fileno()])
            assert channel.receive(1) == ({}, None)
        after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else 0
    assert after == before
    channel.close()


@given(
    st.dictionaries(st.sampled_from(["is", "call_ns", "late", "launches"]), json_values),
    st.floats(),
    st.floats(0, 1e12),
)
def test_times_are_times_or_refused(
    answer: dict[str, Any], settled_ns: float, wall_ns: float
) -> None:
    message = {
        "is": "Called",
        "call_ns": 5.0,
        "settled_ns": settled_ns,
        "late": False,
        "dtype": "float16",
    }
    try:
        time = read_time(unpack({**message, "launches": [], **answer}, Called), wall_ns)
    except (SubmissionFailed, BadMessage):
        return
    assert isinstance(time, CallTime)
    assert 0 < time.call_ns <= time.settled_ns < math.inf


reports = st.dictionaries(st.sampled_from(sorted(json.loads(counts))), json_values)


@settings(max_examples=100)
@given(st.lists(reports | json_values, max_size=4) | json_values)
def test_counts_of_a_worker_add_up_to_an_object_that_can_be_read_back(launches: Any) -> None:
    total = total_counts(json.loads(json.dumps(launches)))
    text = json.dumps(total, allow_nan=False)
    counted = read_counts(text, 100)
    if total["warp_instructions_total"]:
        assert counted is not None
        assert counted["warp_instructions_total"] == total["warp_instructions_total"]
    else:
        assert counted is None
