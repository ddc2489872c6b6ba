"""System calls that a submission never needs, which the kernel refuses to it (seccomp).

They reach keys of the user, other processes, namespaces and mounts, sockets that no namespace
confines, or use up resources that all programs of the user share: memory that no process is charged
for, leases on files that others open, cores. A refused call returns an error and does not end the
process: a library that tries one for a faster path falls back to another.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

from nvfp4.records.base import Record

_x86_64, _aarch64 = 0xC000003E, 0xC00000B7  # AUDIT_ARCH_...

_NOWHERE = (1 << 32) - 1
"""Stands for a call that an architecture does not have."""

_numbers = {
    # name: on x86-64, on aarch64
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    # As if the kernel had none of these: libraries know another way.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # Of whose instances a user has few.
    "inotify_init": (253, _NOWHERE),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    # Of which a machine has few.
    "io_setup": (206, 0),
    "clone3": (435, 435),  # whose flags a filter cannot read; C libraries then call clone
    # By their first argument.
    "clone": (56, 220),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "prctl": (157, 167),
    "fcntl": (72, 25),  # by its second argument
    # A session has a share of the cores: this process stays in its session; the call has no effect.
    "setsid": (112, 157),
}
_first_unknown, _first_by_argument = "io_uring_setup", "clone"
_seccomp = (317, 277)

_families = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_new_namespaces = 0x7E020000  # CLONE_NEW..., but for CLONE_NEWTIME, which clone does not take
_set_dumpable = 4  # a process that is not dumpable hides its files
_SET_LEASE = 1024  # a program that opens a leased file waits for most of a minute
_x32 = 0x40000000  # numbers of x86-64's other set of calls begin here

_join_session_keyring = 1
_set_filter, _without_speculation_limits = 1, 4

_load, _jump_if_equal, _jump_if_at_least, _jump_if_any, _return = 0x20, 0x15, 0x35, 0x45, 0x06
_at_number, _at_architecture, _at_argument, _AT_SECOND_ARGUMENT = 0, 4, 16, 24
_allow, _with_errno = 0x7FFF0000, 0x00050000


class _Step(Record):
    """An instruction of classic BPF."""

    code: int
    value: int
    then: str = ""
    """Label to jump to if the comparison holds."""
    otherwise: str = ""
    """Label to jump to if it does not."""
    label: str = ""


def refuse_system_calls() -> str:
    """Refuse the system calls to this process and those it starts, permanently; needs no_new_privs.
    Returns a description. Raises OSError if the kernel cannot filter."""
    place = _place()
    _join_own_keyring(place)
    # As struct sock_filter. Jumps lead forward and count from the next step.
    steps, program = _steps(place), b""
    places = {step.label: number for number, step in enumerate(steps) if step.label}
    for number, step in enumerate(steps):
        jumps = (places[to] - number - 1 if to else 0 for to in (step.then, step.otherwise))
        program += struct.pack("=HBBI", step.code, *jumps, step.value)
    libc = ctypes.CDLL(None, use_errno=True)
    array = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(array))
    for flags in (_without_speculation_limits, 0):  # which Linux before 4.17 does not know
        arguments = (_set_filter, ctypes.c_ulong(flags), ctypes.byref(header))
        if libc.syscall(ctypes.c_long(_seccomp[place]), *arguments) == 0:
            return f"{len(_numbers)} system calls refused"
    raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def _place() -> int:
    """Return the index of this machine's architecture in ``_numbers``. Raises OSError."""
    machines = ("x86_64", "aarch64")
    if platform.machine() not in machines or sys.maxsize < 1 << 32:
        raise OSError(f"there is no list of system calls for {platform.machine()}")
    return machines.index(platform.machine())


def _join_own_keyring(place: int) -> None:
    """Replace the user's session keyring by a new one.

    If the kernel refuses, the filter suffices: without these calls no keyring can be reached.
    """
    keyctl = ctypes.c_long(_numbers["keyctl"][place])
    ctypes.CDLL(None).syscall(keyctl, ctypes.c_long(_join_session_keyring), None)


def _steps(place: int) -> list[_Step]:
    """Return the filter for an architecture."""
    names = list(_numbers)
    unknown, by_argument = names.index(_first_unknown), names.index(_first_by_argument)
    labels = ["refuse"] * unknown + ["unknown"] * (by_argument - unknown)
    labels += ["clone", "socket", "socket", "prctl", "fcntl", "done"]
    return [
        _Step(_load, _at_architecture),
        _Step(_jump_if_equal, (_x86_64, _aarch64)[place], otherwise="unknown"),
        _Step(_load, _at_number),
        _Step(_jump_if_at_least, _x32, "unknown"),
        *(
            _Step(_jump_if_equal, _numbers[name][place], label)
            for name, label in zip(names, labels, strict=True)
        ),
        _Step(_jump_if_at_least, 0, "allow"),
        _Step(_load, _at_argument, label="clone"),
        _Step(_jump_if_any, _new_namespaces, "refuse", "allow"),
        _Step(_load, _at_argument, label="prctl"),
        _Step(_jump_if_equal, _set_dumpable, "refuse", "allow"),
        _Step(_load, _AT_SECOND_ARGUMENT, label="fcntl"),
        _Step(_jump_if_equal, _SET_LEASE, "refuse", "allow"),
        _Step(_load, _at_argument, label="socket"),
        *(_Step(_jump_if_equal, family, "allow") for family in _families),
        _Step(_return, _with_errno | errno.EAFNOSUPPORT),
        _Step(_return, _allow, label="allow"),
        _Step(_return, _with_errno | errno.EPERM, label="refuse"),
        _Step(_return, _with_errno | errno.ENOSYS, label="unknown"),
        _Step(_return, _with_errno, label="done"),
    ]
