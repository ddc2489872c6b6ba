"""Host code's reads and writes of device memory, outside launches."""

import ctypes

from nvfp4.capture import stream_order


class Owner:
    """The owner of device memory: this process, or another one in a subclass.

    Functions that read or set memory raise the errors of these methods. elsewhere: whether the
    contents are in another process.
    """

    elsewhere = False

    def reads(self, address: int, nbytes: int) -> None:
        """Prepare for host code that is about to use contents."""

    def wrote(self, address: int, nbytes: int) -> None:
        """Note that host code has set these bytes, perhaps to the same values."""

    def opens(self, address: int, nbytes: int) -> None:
        """Prepare for host code that is about to access memory through its address."""

    def put(self, address: int, data: bytes) -> None:
        """Set bytes, which this process need not have memory for."""
        ctypes.memmove(address, data, len(data))

    def get(self, address: int, nbytes: int) -> bytes:
        """Return the contents of such bytes."""
        return ctypes.string_at(address, nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy within the device's memory."""
        ctypes.memmove(to, source, nbytes)


_none = Owner()
owner = _none


def belongs_to(one: Owner | None) -> None:
    """Ask this owner from now on; None for this process."""
    global owner
    owner = one or _none


def reads(address: int, nbytes: int) -> None:
    """Announce that host code will read a range of device memory; call it before the read."""
    stream_order.interrupt()
    if nbytes:
        owner.reads(address, nbytes)


def wrote(address: int, nbytes: int) -> None:
    """Announce that host code has set a range of device memory; call it after the write."""
    stream_order.interrupt()
    if nbytes:
        owner.wrote(address, nbytes)


def put(address: int, data: bytes) -> None:
    """Set device memory."""
    stream_order.interrupt()
    owner.put(address, data)


def get(address: int, nbytes: int) -> bytes:
    """Return the contents of device memory."""
    stream_order.interrupt()
    return owner.get(address, nbytes)


def copy(to: int, source: int, nbytes: int) -> None:
    """Copy within device memory."""
    stream_order.interrupt()
    owner.copy(to, source, nbytes)
