"""System calls that the kernel refuses to a submission, and those that it must not."""

import ctypes
import errno
import json
import os
import sys

import pytest
from conftest import run_python

from nvfp4.sandbox import system_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux filters system calls")

confined = """
import ctypes, json, os
from nvfp4.sandbox.namespaces import drop_capabilities
from nvfp4.sandbox.system_calls import _numbers, _place, refuse_system_calls

def number_of(action):
    try:
        action()
        return 0
    except OSError as error:
        return error.errno

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    number = _numbers[name][_place()]
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
    return ctypes.get_errno()

drop_capabilities()
print(refuse_system_calls(), flush=True)
"""


def run(script: str) -> list[str]:
    """The lines that a script prints which runs without these calls."""
    ended = run_python("-c", confined + script)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_the_calls_are_refused_and_nothing_is_killed() -> None:
    said, found = run(
        "others = ('clone', 'socket', 'socketpair', 'fcntl', 'setsid')\n"
        "names = [name for name in _numbers if name not in others]\n"
        "print(json.dumps({name: call(name, 4, 0, 0, 0, 0) for name in names}))\n"
    )
    assert said.endswith("system calls refused")
    numbers = json.loads(found)
    names = list(system_calls._numbers)
    unknown = names[names.index("io_uring_setup") : names.index("clone")]
    assert {name: numbers[name] for name in unknown} == dict.fromkeys(unknown, errno.ENOSYS)
    others = set(numbers) - set(unknown)
    assert {name: numbers[name] for name in others} == dict.fromkeys(others, errno.EPERM)


def test_sockets_that_no_namespace_confines_cannot_be_made() -> None:
    _, found = run(
        "import socket\n"
        "families = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK,\n"
        "            socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET, 30)\n"
        "print(json.dumps([number_of(lambda: socket.socket(each, 1)) for each in families]))\n"
    )
    allowed, refused = json.loads(found)[:3], json.loads(found)[3:]
    assert set(allowed) <= {0, errno.EAFNOSUPPORT}  # of a system without IPv6
    assert allowed[0] == 0
    assert refused == [errno.EAFNOSUPPORT] * 5


def test_processes_threads_and_programs_start_but_no_namespaces() -> None:
    _, found = run(
        "import subprocess, threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as pool:\n"
        "    threads = sum(pool.map(int, '11'))\n"
        "program = subprocess.run(['true']).returncode\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(7)\n"
        "code = os.waitpid(child, 0)[1] >> 8\n"
        "spawned = os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1]\n"
        "flags = (0x20000000, 0x10000000, 0x40000000, 0x00020000, 0x08000000)\n"
        "spaces = [call('clone', flag | 17, 0, 0, 0, 0) for flag in flags]\n"
        "print(json.dumps([threads, program, code, spawned, *spaces]))\n"
    )
    assert json.loads(found) == [2, 0, 7, 0, *[errno.EPERM] * 5]


def test_no_lease_makes_others_wait_for_a_file() -> None:
    _, found = run(
        "import fcntl\n"
        "file = open(os.__file__)\n"
        "lease = number_of(lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK))\n"
        "lock = number_of(lambda: fcntl.lockf(file, fcntl.LOCK_SH))\n"
        "print(json.dumps([lease, lock]))\n"
    )
    assert json.loads(found) == [errno.EPERM, 0]


def test_nothing_leaves_its_session_for_more_of_the_cores() -> None:
    _, found = run(
        "import subprocess\n"
        "script = 'import os; print(os.getsid(0))'\n"
        "command = [os.sys.executable, '-c', script]\n"
        "said = subprocess.run(command, capture_output=True, start_new_session=True).stdout\n"
        "print(json.dumps([os.getsid(0), int(said)]))\n"
    )
    own, of_a_child = json.loads(found)
    assert of_a_child == own


def test_the_keyring_of_the_user_s_session_is_left() -> None:
    script = (
        "import ctypes\n"
        "from nvfp4.sandbox.system_calls import _join_own_keyring, _numbers, _place\n"
        "def session():\n"
        "    keyctl = ctypes.c_long(_numbers['keyctl'][_place()])\n"
        "    return ctypes.CDLL(None).syscall(keyctl, 0, ctypes.c_long(-3), ctypes.c_long(1))\n"
        "before = session()\n"
        "_join_own_keyring(_place())\n"
        "print(before, session())\n"
    )
    ended = run_python("-c", script)
    before, after = map(int, ended.stdout.split())
    if before == after == -1:
        pytest.skip("this system has no keyrings")
    assert before != after


@pytest.mark.parametrize("place", [0, 1], ids=["x86-64", "aarch64"])
def test_the_numbers_are_those_that_libseccomp_knows(place: int) -> None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp is not installed")
    resolve = library.seccomp_syscall_resolve_name_arch
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    machine = (system_calls._x86_64, system_calls._aarch64)[place]
    for name, numbers in system_calls._numbers.items():
        found = resolve(machine, name.encode())
        assert found != -1, f"libseccomp knows no {name}"
        expected = system_calls._NOWHERE if found < 0 else found
        assert numbers[place] == expected, name


def test_a_machine_without_a_list_is_said_to_have_no_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "ppc64le")
    with pytest.raises(OSError, match="no list of system calls for ppc64le"):
        system_calls.refuse_system_calls()


def test_a_call_of_the_other_set_of_x86_64_is_refused() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("x86-64 alone has two sets")
    _, found = run(
        "ctypes.set_errno(0)\n"
        "libc.syscall(ctypes.c_long(0x40000000 + 39))\n"
        "print(ctypes.get_errno())\n"
    )
    assert int(found) == errno.ENOSYS
