"""Counts the lines of code of the product, the tests and the scripts; fails above a cap.

python .ci/code_lines.py

A line of code holds more than a comment or a docstring; Python and C++ count alike. A new
capability pays for itself by what it replaces: lower a cap with every cut, and raise none.
"""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

root = Path(__file__).resolve().parent.parent

caps = {"nvfp4": (40_000, 350), "tests": (28_000, 275), "scripts": (2_125, 21)}
"""The most lines of code and the most files of a folder."""

_apart = ("nvfp4/ladder", "nvfp4/selftest/")
"""Specimens: kernels to learn from, cheats and honest submissions."""

_cpp = {".cpp", ".h", ".inl", ".cu", ".cuh"}
_no_code = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.ENCODING),
}


def lines_of_python(text: str) -> int:
    """Lines with code; every line that holds text if it is not Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return sum(1 for line in text.splitlines() if line.strip())
    docstrings = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _no_code
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - docstrings)


def lines_of_cpp(text: str) -> int:
    """Lines that are neither empty nor begin as a comment does."""
    lines = (line.strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith(("//", "*", "/*")))


def count(folder: str) -> tuple[int, int]:
    """Lines of code and files that git tracks in a folder."""
    command = ["git", "ls-files", "-z", folder]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    lines = files = 0
    for name in filter(None, listed.stdout.split("\0")):
        path = root / name
        if name.startswith(_apart) or path.suffix not in {".py", *_cpp} or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        lines += lines_of_python(text) if path.suffix == ".py" else lines_of_cpp(text)
        files += 1
    return lines, files


def main() -> int:
    """Print the counts and return the exit code: 1 if one is above its cap."""
    above = False
    for folder, (most_lines, most_files) in caps.items():
        lines, files = count(folder)
        over = lines > most_lines or files > most_files
        above |= over
        cap = f"cap {most_lines:,} in {most_files}"
        print(f"{folder:8} {lines:6,} lines of code in {files} files; {cap}{' EXCEEDED' * over}")
    return int(above)


if __name__ == "__main__":
    sys.exit(main())
