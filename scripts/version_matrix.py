"""What works with which version of nvidia-cutlass-dsl: installs each and prints a table.

    python -m scripts.version_matrix
    python -m scripts.version_matrix --versions oldest,installed
    python -m scripts.version_matrix --versions 4.5.2,4.8.1 --keep FOLDER

Needs no GPU. Everything but CuTe DSL comes from the environment that runs this, and so does the
version that is installed there. --keep leaves the other virtual environments in FOLDER, named by
version, and uses those that are there.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from nvfp4.capture.cutedsl.versions import OLDEST, TRIED, installed

root = pathlib.Path(__file__).resolve().parent.parent

# Each prints "yes" or why not, in a process of its own.
_COMPILES = """
import os
os.environ["CUTE_DSL_ARCH"] = "sm_100a"
from cutlass.base_dsl.compiler import Compiler
compiled, original = [], Compiler.compile
def compile_and_note(*arguments, **options):
    compiled.append(original(*arguments, **options))
    return compiled[-1]
Compiler.compile = compile_and_note
import submission
try:
    for m, k, l in submission.tables[100, 0]:
        submission.compiled(k, submission.configuration_for(m, k, l, 100), 100, False)
except Exception as error:  # before 4.5 linking, which comes last, asks for a driver
    if not compiled:
        raise
print("yes")
"""
_EMULATES = """
import importlib, sys
from nvfp4 import emulation
with emulation.install("sm_100a"):
    sys.path[:0] = ["ladder/cute"]
    from nvfp4.problems.nvfp4_gemv import reference
    for name in {names}:
        for m, k, l in ((128, 256, 1), (256, 512, 2)):
            data = reference.generate_full_range_input(m, k, l, seed=k)
            output = importlib.import_module(name).custom_kernel(data)
            right, message = reference.check_implementation(data, output)
            assert right, name + " is wrong: " + message
print("yes")
"""
_KERNELS = ["03_block_sum", "06_split_k_shared", "08_plain_scales", "12_one_asm"]
CHECKS = {
    "compiles submission.py for sm_100a": _COMPILES,
    "emulates it": _EMULATES.replace("{names}", repr(["submission"])),
    "emulates rungs of ladder/": _EMULATES.replace("{names}", repr(_KERNELS)),
}


def python_of(folder: pathlib.Path, version: str) -> pathlib.Path:
    """The interpreter of a version's environment, which may be the one that runs this."""
    if version == installed():
        return pathlib.Path(sys.executable)
    return folder / version / "bin" / "python"


def install(folder: pathlib.Path, version: str) -> None:
    """Make the environment of a version. Raises RuntimeError with pip's last line.

    It sees the packages of the environment that runs this, pip among them, after its own, so
    only what they lack is downloaded.
    """
    venv.create(folder / version)
    packages = next((folder / version).glob("lib/python*/site-packages"))
    (packages / "zz_shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = python_of(folder, version)
    command = [str(python), "-m", "pip", "install", "--quiet", f"nvidia-cutlass-dsl=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])


def check(python: pathlib.Path, code: str) -> str:
    """What the check says: yes, or the last line of its error."""
    done = subprocess.run(
        [python, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(root), "NO_COLOR": "1"},
    )
    if done.returncode == 0:
        return done.stdout.split()[-1]
    unindented = [line for line in done.stderr.splitlines() if line[:1].strip()]
    errors = [line for line in unindented if "Error" in line or "Unsupported" in line]
    return (errors or unindented or ["no output"])[-1]


def main() -> int:
    """Print the table; 1 if a version does not do what it must."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--versions", default=",".join(TRIED), help="or oldest, installed; separated by commas"
    )
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="of the environments")
    arguments = parser.parse_args()
    named = {"oldest": OLDEST, "installed": installed()}
    versions = [named.get(each, each) for each in arguments.versions.split(",")]
    failed = []
    print(" | ".join(["version", *CHECKS]), flush=True)
    with tempfile.TemporaryDirectory(prefix="versions-") as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        for version in versions:
            try:
                if not python_of(folder, version).exists():
                    install(folder, version)
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    python = python_of(folder, version)
                    cells = list(pool.map(partial(check, python), CHECKS.values()))
            except RuntimeError as error:
                cells = [str(error)] * len(CHECKS)
            if set(cells) != {"yes"}:
                failed.append(version)
            print(" | ".join([f"{version:7}", *cells]), flush=True)
    those = ", ".join(failed or versions)
    print(f"nvidia-cutlass-dsl {those}: {'FAILED' if failed else 'every check passed'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
