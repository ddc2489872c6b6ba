"""All front ends together: every launch of this process goes to one function."""

from contextlib import ExitStack
from dataclasses import replace

from nvfp4.capture import cutedsl, graphs, standin, stream_order
from nvfp4.capture.cuda import hooks as cuda
from nvfp4.capture.cuda.runtime import FindVariable
from nvfp4.capture.host_access import Owner, belongs_to
from nvfp4.capture.imports import when_imported
from nvfp4.capture.torch_memory import ProcessMemory
from nvfp4.records.launch import Examine, Launch, Note
from nvfp4.records.texts import short_name


class Interception:
    """Takes launches until `uninstall`; a subclass says what becomes of them."""

    _variable: FindVariable
    _examine: Examine

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._memory = ProcessMemory()
        self._stop = ExitStack()

    def _run(self, launch: Launch) -> None:
        """Run a launch whose turn has come."""
        raise NotImplementedError

    def capture_cute_dsl(self) -> None:
        """Take CuTe DSL's launches from now on."""
        self._stop.callback(cutedsl.start(self._take, self.arch, self._memory, self._examine))

    def capture_triton(self) -> None:
        """Take Triton's launches from now on."""
        from nvfp4.capture import triton

        self._stop.callback(triton.start(self._take, self.arch, self._memory))

    def stand_in(self, owner: Owner) -> None:
        """Give torch a CUDA device whose memory has this owner, and take the launches of all front
        ends from now on."""
        self._stop.callback(standin.install(self.arch).uninstall)
        belongs_to(owner)
        self._stop.callback(belongs_to, None)
        # Importing CuTe DSL and Triton takes a second, which a submission in plain torch is spared.
        self._stop.callback(when_imported("cutlass", self.capture_cute_dsl))
        self._stop.callback(when_imported("triton", self.capture_triton))
        asked = self._take, self._variable, self.arch, self._memory, self._examine
        self._stop.callback(cuda.start(*asked))

    def uninstall(self) -> None:
        """Leave CuTe DSL, Triton, and torch where a stand-in was installed, as they were."""
        self._stop.close()

    def _take(self, launch: Launch) -> None:
        launch = replace(
            launch,
            programmatic=launch.programmatic and stream_order.follows_a_kernel(launch.stream),
            waited=stream_order.waits(),
            alongside=stream_order.runs_alongside(launch.stream),
        )

        def run() -> None:
            self._run(replace(launch, stream=graphs.stream_now(launch.stream)))

        if launch.trial:
            graphs.do(launch.stream, run)
        else:
            graphs.do_in(launch.stream, launch.kernel, run)


_EARLY = (
    "{} runs in a stream that does not wait for the caller's: on a GPU it may run before the "
    "inputs are there",
    "let the stream wait first: stream.wait_stream(torch.cuda.current_stream()), or an event",
)
_LATE = (
    "{} runs in a stream that the current one does not wait for: on a GPU it may still run when "
    "custom_kernel's work seems to have ended",
    "let the current stream wait for it: torch.cuda.current_stream().wait_stream",
)


def unordered_notes(stream: int) -> list[tuple[str, Note]]:
    """Return notes of the kernels that nothing orders with a stream, by the kernel's name."""
    notes = []
    for each in stream_order.unordered(stream):
        message, hint = _EARLY if each.early else _LATE
        text = message.format(short_name(each.kernel))
        note = Note("stream.unordered", text, hint=hint, file=each.file, line=each.line)
        notes.append((each.kernel, note))
    return notes
