"""The lines that reach the bot: escaped, cut, and never more than a pipe holds."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Recorder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fuzz import json_values

from nvfp4.cli.verdict import unescape
from nvfp4.judge.protocol import Exit, ResultPipe, escape, streamed_bytes
from nvfp4.records.channel import (
    BadMessage,
    Channel,
    ChannelClosed,
    ChannelTimeout,
    longest_message_bytes,
)
from nvfp4.records.messages import Failed, Profiled, unpack

line_breaks = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@given(st.text(st.one_of(st.characters(), st.sampled_from(line_breaks + "\\"))))
def test_escaped_text_is_one_line(text: str) -> None:
    assert len(escape(text).splitlines()) <= 1
    assert not set(escape(text)) & set(line_breaks)


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]) | st.just("\\"))))
def test_the_command_reads_back_the_lines_that_were_escaped(lines: list[str]) -> None:
    text, recorder = "\n".join(lines)[:1000], Recorder()
    recorder.pipe.write("test.0.error", text)
    said = recorder.raw().decode().removeprefix("test.0.error: ").removesuffix("\n")
    recorder.close()
    assert unescape(said) == "\n".join(text.splitlines())


@given(key=st.from_regex(r"[a-z]+\.[0-9]\.[a-z]+", fullmatch=True), value=st.text())
def test_a_value_cannot_begin_a_line_of_its_own(key: str, value: str) -> None:
    recorder = Recorder()
    recorder.pipe.write(key, value)
    recorder.pipe.verdict(passed=False)
    raw = recorder.raw()
    recorder.close()
    assert raw.count(b"\n") == 2
    assert raw.startswith(f"{key}: ".encode())
    assert raw.decode().splitlines()[-1] == "check: fail"


def test_an_injected_verdict_stays_inside_its_value_and_no_unicode_is_replaced(
    recorder: Recorder,
) -> None:
    recorder.pipe.write("test.0.error", "no\ncheck: pass\r\ntest.0.status: pass")
    recorder.pipe.write("test.1.error", "a lone surrogate \udcff")
    recorder.pipe.verdict(passed=False)
    assert recorder.values() == {
        "test.1.error": "a lone surrogate ?",
        "test.0.error": r"no\ncheck: pass\ntest.0.status: pass",
        "check": "fail",
    }


def test_a_long_value_is_cut_between_characters_and_says_so(recorder: Recorder) -> None:
    recorder.pipe.write("test.0.error", "é" * 5000)
    [value] = recorder.values().values()
    assert value.endswith(" ... (cut)")
    assert len(value.encode()) <= ResultPipe.longest_value_bytes
    assert set(value.removesuffix(" ... (cut)")) == {"é"}


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 4000)), min_size=30, max_size=200),
    st.booleans(),
)
def test_whatever_is_written_fits_the_pipe_and_ends_with_the_verdict(
    values: list[tuple[int, int]], passed: bool
) -> None:
    recorder = Recorder()  # nobody reads before the end: more than a pipe holds would block here
    for number, length in values:
        recorder.pipe.write(f"test.{number}.error", "x" * length)
    recorder.pipe.verdict(passed)
    raw = recorder.raw()
    recorder.close()
    lines = raw.decode().splitlines()
    assert len(raw) < 64 << 10
    assert lines[-1] == f"check: {'pass' if passed else 'fail'}"


@pytest.mark.parametrize("length", [700, 1400, 1900, 1970, 5000])
def test_lines_that_do_not_fit_the_pages_of_a_pipe_still_fill_it(
    length: int, recorder: Recorder
) -> None:
    """Linux wastes the rest of a page where a write does not fit: a deadlock at half the size."""
    for number in range(100):
        recorder.pipe.write(f"test.{number}.spec", "m: 128; k: 256; l: 1; seed: 1111")
        recorder.pipe.write(f"test.{number}.status", "fail")
        recorder.pipe.write(f"test.{number}.error", "x" * length)
    recorder.pipe.verdict(passed=False)
    raw = recorder.raw()
    assert len(raw) > ResultPipe.capacity_bytes - 3000
    assert raw.endswith(b"check: fail\n")


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    fd = os.dup(2)
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        ResultPipe(fd)


def test_exit_codes_are_the_bot_s() -> None:
    assert {name: code.value for name, code in Exit.__members__.items()} == {
        **{"PASSED": 0, "USAGE": 2, "CUDA_ERROR": 110, "NO_PIPE": 111, "CHECK_FAILED": 112},
        **{"BAD_CASE_FILE": 113, "TIMED_OUT": 114},
    }


def test_what_a_verdict_depends_on_has_room_whatever_else_was_written() -> None:
    recorder = Recorder()
    recorder.pipe.reserve(40, 360)
    for number in range(40):
        told = recorder.pipe.write(f"test.{number}.output", "x" * 3000, 3000)
        recorder.pipe.write(f"test.{number}.status", "fail", essential=True)
        if not told:
            recorder.pipe.write(f"test.{number}.dropped", "output", essential=True)
        recorder.pipe.complete(f"test.{number}")
    recorder.pipe.verdict(passed=False)
    values = recorder.values()
    recorder.close()
    assert [values[f"test.{number}.status"] for number in range(40)] == ["fail"] * 40
    missing = [number for number in range(40) if f"test.{number}.output" not in values]
    assert missing
    assert [values[f"test.{number}.dropped"] for number in missing] == ["output"] * len(missing)


def test_where_somebody_reads_meanwhile_nothing_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results"
    pipe = ResultPipe(os.open(path, os.O_WRONLY | os.O_CREAT), streamed_bytes)
    assert all(pipe.write(f"test.{number}.error", "x" * 1900) for number in range(100))
    assert path.read_text().count("\n") == 100


# Messages between judge and worker: whole, in time, and never more than JSON.


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours, takes_fds=True)
    yield channel, theirs
    channel.close()
    theirs.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), min_size=1, max_size=4))
def test_messages_arrive_as_they_were_sent(
    ends: tuple[Channel, socket.socket], messages: list[dict[str, object]]
) -> None:
    channel, theirs = ends
    sender = Channel(theirs)
    for message in messages:
        sender.send(message)
    received = [channel.receive(1) for _ in messages]
    assert json.dumps(received) == json.dumps([(message, None) for message in messages])


def test_a_descriptor_travels_with_its_message(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    fd = os.memfd_create("contents")
    os.write(fd, b"shared")
    Channel(theirs).send({"op": "case"}, fd)
    os.close(fd)
    message, received = channel.receive(1)
    assert message == {"op": "case"}
    assert received is not None
    assert os.pread(received, 10, 0) == b"shared"
    os.close(received)


def test_a_message_in_pieces_is_put_together(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(b'{"id"')
    threading.Timer(0.05, theirs.sendall, (b": 7}\n{",)).start()
    assert channel.receive(2) == ({"id": 7}, None)


def test_silence_and_drops_of_bytes_end_at_the_time_limit(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    theirs.sendall(b'{"never": ')
    start = time.monotonic()
    with pytest.raises(ChannelTimeout):
        channel.receive(0.1)
    assert 0.1 <= time.monotonic() - start < 20
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            theirs.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    start = time.monotonic()
    try:
        with pytest.raises(ChannelTimeout):
            channel.receive(0.2)
    finally:
        stop.set()
        thread.join()
    assert time.monotonic() - start < 20


def test_a_closed_connection_is_noticed_on_both_ways(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.close()
    with pytest.raises(ChannelClosed):
        channel.receive(1)
    with pytest.raises(ChannelClosed):
        channel.send({"op": "call"})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        *((b"hello\n", "not JSON"), (b"[1, 2]\n", "not a JSON object")),
        *((b"null\n", "not a JSON object"), (b"\xff\xfe\n", "not JSON"), (b"\n", "not JSON")),
        (b"[" * 100_000 + b"\n", "not JSON"),
    ],
)
def test_nonsense_is_refused(ends: tuple[Channel, socket.socket], data: bytes, why: str) -> None:
    channel, theirs = ends
    theirs.sendall(data)
    with pytest.raises(BadMessage, match=why):
        channel.receive(1)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"is": ["Profiled"]}, "is no Profiled or Failed"),
        ({"is": "Called", "call_ns": 1.0}, "is no Profiled or Failed"),
        ({"is": "Profiled", "report": 5, "dtype": ""}, "no report of type str"),
        ({"is": "Failed", "message": ["a"], "failure": {}}, "type str"),
    ],
)
def test_a_record_of_another_kind_or_type_is_refused(message: dict[str, object], why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        unpack(message, Profiled, Failed)


def test_an_endless_message_is_refused_and_not_kept(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends

    def flood() -> None:
        sent = 0
        while sent < 4 * longest_message_bytes:
            try:
                sent += theirs.send(b"x" * 65536)
            except OSError:
                return

    thread = threading.Thread(target=flood)
    thread.start()
    with pytest.raises(BadMessage, match="longer than"):
        channel.receive(10)
    channel.close()
    thread.join(10)
    assert not thread.is_alive()
