"""The referee of the problem that the options name. Imports nothing heavy."""

from pathlib import Path
from typing import TYPE_CHECKING

from nvfp4 import problems
from nvfp4.records.options import Options

if TYPE_CHECKING:
    from nvfp4.contract.referee import Referee

_bundled = Path(problems.__path__[0]) / "nvfp4_gemv"
_not_beside = ("submission.py", "eval.py")


def files_beside(options: Options) -> dict[str, bytes]:
    """Return the files that a submission may import, by name: the problem's, from the current
    folder unless the problem is the package's."""
    if not options.problem:
        return {name: (_bundled / name).read_bytes() for name in ("task.py", "utils.py")}
    found = (path for path in sorted(Path.cwd().iterdir()) if path.name not in _not_beside)
    return {path.name: path.read_bytes() for path in found if path.suffix == ".py"}


def referee_of(options: Options) -> "Referee":
    """Return the referee; ``close`` ends it."""
    if not options.problem:
        from nvfp4.problems.nvfp4_gemv.referee import Gemv

        return Gemv()
    from nvfp4.judge.folder_referee import FolderReferee

    return FolderReferee(files_beside(options), options)
