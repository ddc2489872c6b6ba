"""What the judge reads in a folder that a submission can write: plain files, nothing else."""

import os
from pathlib import Path

import pytest

from nvfp4.records.files import open_plain_file, read_plain_file
from nvfp4.records.unanswered import RequestState, last_state, stack_of_hang


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A submission's folder, beside which lies a file of the user's."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("hush")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return scratch


def test_a_plain_file_is_read_up_to_a_limit(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("kept")
    assert read_plain_file(folder, "inner/file", 100) == b"kept"
    assert read_plain_file(folder, "inner/file", 2) == b"ke"


def test_no_link_is_followed_in_any_part_of_a_path(folder: Path) -> None:
    (folder / "file").symlink_to(folder.parent / "secret" / "file")
    (folder / "inner").symlink_to(folder.parent / "secret")
    (folder / "environment").symlink_to("/proc/self/environ")
    for name in ("file", "inner/file", "environment", "../secret/file", "/etc/hostname", ""):
        assert read_plain_file(folder, name, 100) is None, name


def test_pipes_devices_and_folders_are_no_plain_files_and_nobody_waits(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "inner").mkdir()
    for name in ("pipe", "inner", "pipe/file"):
        with pytest.raises(OSError):  # noqa: PT011
            open_plain_file(folder, name)
    with pytest.raises(OSError, match="no regular file"):
        open_plain_file(Path("/dev"), "zero")


def test_descriptors_are_closed_when_a_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    assert read_plain_file(folder, "pipe", 1) is None
    assert read_plain_file(folder, "none/file", 1) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_links_and_pipes_say_nothing_of_a_process_that_ended(folder: Path) -> None:
    os.mkfifo(folder / "request")
    (folder / "stack").symlink_to(folder.parent / "secret" / "file")
    assert last_state(folder) == RequestState()
    assert stack_of_hang(folder, "submission.py", "", "submission.py") == ""
