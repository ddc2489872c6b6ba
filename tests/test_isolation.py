"""What a submission can reach of the system it runs on: nothing of others."""

import ctypes
import errno
import json
import os
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bot import case, root
from conftest import alone, run_python, with_the_judge

import nvfp4.cli.judging.bot
from nvfp4.cli.problem import load_problem
from nvfp4.records.options import Options
from nvfp4.sandbox import isolation, system_calls
from nvfp4.sandbox.mounts import hidden_program_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines processes")


def inside(source: str, folder: Path, **environment: str) -> dict:
    """What a script prints as JSON, confined."""
    (folder / "submission.py").write_text(f"import json, os\n{source}\n")
    ended = run_python(*alone, cwd=folder, env={**with_the_judge, **environment})
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


probe = """
import contextlib, pathlib, socket, subprocess

def attempt(action):
    try:
        action()
        return "done"
    except Exception as error:
        return type(error).__name__

def write(path):
    with open(path, "w") as file:
        file.write("x")

def connect(path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as one:
        one.connect(path)

outside = os.environ["OUTSIDE_PATH"]
print(json.dumps({
    "processes": [name for name in os.listdir("/proc") if name.isdecimal()],
    "namespaces": {name: os.readlink("/proc/self/ns/" + name)
                   for name in os.listdir("/proc/self/ns")},
    "interfaces": [
        line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]],
    "tmp": os.listdir("/tmp"),
    "shm": os.listdir("/dev/shm"),
    "dev": os.listdir("/dev"),
    "variables": sorted(os.environ),
    "capabilities": [l for l in open("/proc/self/status") if l.startswith(("CapEff", "CapBnd"))],
    "compiler": subprocess.run(["g++", "--version"], capture_output=True).returncode,
    "write": attempt(lambda: write(outside + "/file")),
    "chmod": attempt(lambda: os.chmod(outside + "/file", 0o777)),
    "utime": attempt(lambda: os.utime(outside + "/file")),
    "xattr": attempt(lambda: os.setxattr(outside + "/file", "user.x", b"1")),
    "socket": attempt(lambda: connect(outside + "/socket")),
    "sockets and pipes": [each.name for each in pathlib.Path(outside).rglob("*")
                          if each.is_socket() or each.is_fifo()],
    "settings": attempt(lambda: write("/proc/sys/kernel/core_pattern")),
    "mount": attempt(lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/tmp"], check=True)),
    "judge": attempt(lambda: os.sched_setaffinity(int(os.environ["JUDGE_PATH"]), {0})),
    "caches": os.listdir(os.path.dirname(os.environ["XDG_CACHE_HOME"])),
    "above the caches": os.listdir(os.path.dirname(os.path.dirname(os.environ["XDG_CACHE_HOME"]))),
    "history": attempt(lambda: open(os.environ["HISTORY_PATH"])),
    "new beside the caches": attempt(
        lambda: write(os.path.dirname(os.environ["XDG_CACHE_HOME"]) + "/lock")),
    "own cache": attempt(lambda: write(os.environ["XDG_CACHE_HOME"] + "/file")),
    "own file": attempt(lambda: write("file")),
    "own tmp": attempt(lambda: write("/tmp/file")),
    "own shm": attempt(lambda: write("/dev/shm/file")),
}))
"""

kept_back = {"SECRET_TOKEN", "PYTHONOPTIMIZE", "TRITON_INTERPRET", "TRITON_INSTRUMENTATION_MODE"}
kept_back |= {"CUTE_DSL_DRYRUN", "CUTE_DSL_DUMP_DIR", "CUTE_DSL_KEEP", "NUMBA_CPU_NAME"}
kept_back |= {"PYTHONWARNINGS"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """What a script finds that runs confined. Files and sockets lie outside of /tmp."""
    outside = Path.home() / ".cache" / f"nvfp4-test-{os.getpid()}"
    (outside / "daemon").mkdir(parents=True)
    (outside / "file").write_text("kept")
    listening, other = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    listening.bind(str(outside / "socket"))
    listening.listen()
    for number in range(600):
        os.link(outside / "socket", outside / f"a link {number}")
    os.link(outside / "socket", os.fsencode(outside) + b"/no UTF-8: \xff")
    os.mkfifo(outside / "pipe")
    try:
        variables = {"JUDGE_PATH": str(os.getpid()), **dict.fromkeys(kept_back, "1")}
        (history := outside / "nvfp4" / "history.sqlite3").parent.mkdir()
        history.write_text("")
        variables |= {"XDG_CACHE_HOME": str(outside / "caches"), "XDG_DATA_HOME": str(outside)}
        variables |= {"OUTSIDE_PATH": str(outside), "HISTORY_PATH": str(history)}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(outside)
            other.bind("daemon/once")
            Path("daemon/once").rename("daemon/now")
            found = inside(probe, tmp_path_factory.mktemp("alone"), **variables)
        yield found
        assert (outside / "file").read_text() == "kept"
    finally:
        listening.close()
        other.close()
        shutil.rmtree(outside)


@pytest.fixture(scope="module")
def namespaced(seen: dict) -> dict:
    if seen["namespaces"]["pid"] == os.readlink("/proc/self/ns/pid"):
        pytest.skip("this system has no user namespaces")
    return seen


def test_a_submission_has_namespaces_of_its_own(namespaced: dict) -> None:
    for name in ("pid", "ipc", "mnt", "net", "user", "uts"):
        assert namespaced["namespaces"][name] != os.readlink(f"/proc/self/ns/{name}"), name
    assert len(namespaced["processes"]) == 2
    assert namespaced["interfaces"] == ["lo"]


def test_a_submission_has_no_rights_of_root_nor_over_what_is_not_its_own(namespaced: dict) -> None:
    assert [line.split()[1] for line in namespaced["capabilities"]] == ["0" * 16] * 2
    assert namespaced["settings"] in ("OSError", "PermissionError")
    assert namespaced["above the caches"] == ["submissions"]
    assert len(namespaced["caches"]) == 1
    expected = {
        "mount": "CalledProcessError",
        "history": "FileNotFoundError",
        "new beside the caches": "OSError",
        **dict.fromkeys(("write", "chmod", "utime", "xattr"), "OSError"),
        "socket": "ConnectionRefusedError",
        "sockets and pipes": [],
        "judge": "ProcessLookupError",
        **dict.fromkeys(("own cache", "own file", "own tmp", "own shm"), "done"),
    }
    assert {name: namespaced[name] for name in expected} == expected


def test_without_namespaces_files_that_others_lock_cannot_be_read(tmp_path: Path) -> None:
    for name in ("home/private/mine", "home/other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/private/lock", "home/private/mine/file", "home/other/file", "home/file"):
        (tmp_path / name).write_text("text")
    (tmp_path / "home" / "link").symlink_to(tmp_path)
    script = (
        "import os\nfrom pathlib import Path\nfrom nvfp4.sandbox import confinement, namespaces\n"
        "listed, gone = confinement._all_but, [Path('gone')]  # a file that another one removes\n"
        "confinement._all_but = lambda of: [*listed(of), *(gone.pop() for _ in gone[:])]\n"
        "namespaces.drop_capabilities()\nall_ = [Path('private')]\n"
        "confinement.confine_files([Path('private/mine')], all_)\n"
        "for name in ('private/lock', 'link/home/private/lock', 'private/mine/file',\n"
        "             'other/file', 'file', '/etc/passwd', '/proc/self/status'):\n"
        "    try:\n        open(name).close()\n        print('read', name)\n"
        "    except OSError:\n        print('refused', name)\nprint(sorted(os.listdir(all_[0])))\n"
    )
    ended = run_python("-c", script, cwd=tmp_path / "home")
    if "Landlock" in ended.stderr:
        pytest.skip("this system has no Landlock")
    names = ("private/mine/file", "other/file", "file", "/etc/passwd", "/proc/self/status")
    assert ended.stdout.splitlines() == [
        "refused private/lock",
        "refused link/home/private/lock",
        *(f"read {name}" for name in names),
        "['lock', 'mine']",
    ], ended.stderr


in_tmp = pytest.mark.skipif(root.is_relative_to("/tmp"), reason="the judge itself lies in /tmp")


@in_tmp
def test_temporary_folders_and_shared_memory_are_private(namespaced: dict) -> None:
    assert [name for name in namespaced["tmp"] if not name.startswith("pytest-")] == []
    assert namespaced["shm"] == []
    assert set(namespaced["dev"]) >= {"null", "zero", "urandom", "shm"}
    assert not [name for name in namespaced["dev"] if name.startswith(("sd", "vd", "kvm", "mem"))]
    assert not Path("/tmp/file").exists()
    assert not Path("/dev/shm/file").exists()


@in_tmp
def test_caches_below_tmp_are_hidden_as_well(tmp_path: Path, namespaced: dict) -> None:
    attempt = """
own = os.environ["XDG_CACHE_HOME"]
os.mkdir(own + "/file")
try:
    os.mkdir(own + "/../new")
    print(json.dumps({"new": "made"}))
except OSError as error:
    print(json.dumps({"new": os.strerror(error.errno), "seen": os.listdir(own + "/..")}))
"""
    caches, folder = tmp_path / "caches", tmp_path / "folder"
    caches.mkdir()
    folder.mkdir()
    found = inside(attempt, folder, XDG_CACHE_HOME=str(caches))
    assert found["new"] == "Read-only file system"
    assert len(found["seen"]) == 1


def test_only_listed_variables_are_passed_on(seen: dict) -> None:
    assert kept_back.isdisjoint(seen["variables"])
    assert {"PATH", "TMPDIR"} <= set(seen["variables"])
    ours = {name for name in seen["variables"] if name.startswith(("NVFP4_", "POPCORN_"))}
    assert ours <= {"NVFP4_DEADLINE", "NVFP4_OPTIONS"}
    assert seen["compiler"] == 0, "programs that a submission needs are there"


def test_a_package_below_tmp_is_shown_to_a_process_whose_path_begins_at_the_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = ["/", "/tmp/checkout", "/tmp/checkout/tests", "/run/libraries"]
    monkeypatch.setattr(sys, "path", path)
    found = {str(path) for path in hidden_program_folders()}
    assert found >= {"/tmp/checkout", "/run/libraries"}
    assert not found & {"/", "/tmp/checkout/tests"}


seeking = """
import os

def custom_kernel(data):
    found, looked = [], 0
    for top in ("/proc", "/tmp", "/dev/shm", os.getcwd()):
        for folder, folders, names in os.walk(top):
            endless = ("sys", "task", "fd", "map_files")
            folders[:] = [name for name in folders if name not in endless]
            if top == "/proc":
                names = [name for name in names if name in ("environ", "cmdline")]
            for name in names:
                try:
                    with open(os.path.join(folder, name), "rb") as file:
                        looked += 1
                        if str(7654320 + 1).encode() in file.read():
                            found.append(os.path.join(folder, name))
                except OSError:
                    pass
    assert looked > 3
    raise LookupError(f"found {found}")
"""


@in_tmp
def test_no_seed_stands_where_a_submission_can_read(seen: dict) -> None:
    in_tests, alone = (
        nvfp4.cli.judging.bot.Bot(load_problem(), text.encode(), Options(device="cpu"), 7654321)
        for text in (seeking, f"{seeking}\ncustom_kernel(None)\n")
    )
    ended = in_tests.run_eval("test", [case(seed=7654321)])
    assert "LookupError: found []" in ended.values["test.0.error"]
    assert alone.run_submission().stderr.endswith("LookupError: found []")


def test_a_judge_may_open_more_files_than_a_submission_can_leave_on_the_way(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= isolation.open_files:
        pytest.skip("no process may open more files here")
    script = (
        "import resource\n"
        "from nvfp4.judge import entry\n"
        "from nvfp4.sandbox import isolation\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(7)[1]))\n"
        "entry.main(['no such mode'])\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "isolation.limit_resources()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    ended = run_python("-c", script, cwd=tmp_path)
    judge, submission = map(int, ended.stdout.split())
    assert judge > submission == isolation.open_files, ended.stderr


def test_a_submission_leaves_others_the_signals_that_a_user_may_have_pending(
    tmp_path: Path,
) -> None:
    script = "import resource\nprint(json.dumps(resource.getrlimit(resource.RLIMIT_SIGPENDING)))\n"
    assert all(0 <= each <= 4096 for each in inside(script, tmp_path))


# System calls that the kernel refuses to a submission, and those that it must not.

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


FREEDOM: dict[str, tuple[str, list[Any]]] = {
    "processes, threads and programs start, but no namespaces": (
        "import subprocess\n"
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
        "print(json.dumps([threads, program, code, spawned, *spaces]))\n",
        [2, 0, 7, 0, *[errno.EPERM] * 5],
    ),
    "no lease makes others wait for a file": (
        "import fcntl\n"
        "file = open(os.__file__)\n"
        "lease = number_of(lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK))\n"
        "lock = number_of(lambda: fcntl.lockf(file, fcntl.LOCK_SH))\n"
        "print(json.dumps([lease, lock]))\n",
        [errno.EPERM, 0],
    ),
    "nothing leaves its session for more of the cores": (
        "import subprocess\n"
        "script = 'import os; print(os.getsid(0))'\n"
        "command = [os.sys.executable, '-c', script]\n"
        "said = subprocess.run(command, capture_output=True, start_new_session=True).stdout\n"
        "print(json.dumps([int(said) - os.getsid(0)]))\n",
        [0],
    ),
}


@pytest.mark.parametrize("what", FREEDOM)
def test_what_a_submission_may_still_do(what: str) -> None:
    script, expected = FREEDOM[what]
    assert json.loads(run(script)[1]) == expected


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
    before, after = map(int, run_python("-c", script).stdout.split())
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
        assert numbers[place] == (system_calls._NOWHERE if found < 0 else found), name


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
