"""Versions of nvidia-cutlass-dsl: what is refused, and how; `make versions` runs the oldest one."""

import importlib.metadata
import os

import pytest

pytest.importorskip("cutlass")

from conftest import intercept
from cutlass.base_dsl.compiler import Compiler
from cutlass.base_dsl.jit_executor import JitExecutor

from nvfp4.capture.cutedsl import versions
from nvfp4.capture.patches import Patches


def pretend(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0", "3.9"])
def test_a_version_that_is_too_old_is_named_with_those_that_are_not(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, version)
    with pytest.raises(ImportError) as caught, intercept(lambda launch: None):
        pass
    message, hint = str(caught.value).split("\n  hint: ")
    assert message == (
        f"nvidia-cutlass-dsl {version} cannot be intercepted: it is older than 4.3.5"
    )
    assert hint.startswith("4.3.5, 4.4.2, 4.5.2,")


def test_a_later_version_than_was_tried_is_not_refused_for_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Compiler.compile
    pretend(monkeypatch, "5.0.0.dev1")
    with intercept(lambda launch: None):
        assert Compiler.compile is not before


def test_a_version_without_what_is_hooked_is_refused_and_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Compiler.compile, os.environ.get("CUTE_DSL_ARCH")
    pretend(monkeypatch, "5.0")
    monkeypatch.delattr(JitExecutor, "run_compiled_program")
    lacks = r"5\.0 .*JitExecutor has no run_compiled_program"
    with pytest.raises(versions.UnsupportedVersion, match=lacks), intercept(lambda launch: None):
        pass
    assert (Compiler.compile, os.environ.get("CUTE_DSL_ARCH")) == before
    monkeypatch.undo()
    with intercept(lambda launch: None):  # the refused one does not count as installed
        pass


def test_a_module_that_a_version_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> list[object]:
        raise ModuleNotFoundError("No module named 'cutlass.base_dsl.dsl'")

    monkeypatch.setattr(versions, "dsl_objects", missing)
    refused = pytest.raises(versions.UnsupportedVersion, match=r"No module named 'cutlass")
    with refused, intercept(lambda launch: None):
        pass


def test_without_the_package_it_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ImportError, match="not installed"), intercept(lambda launch: None):
        pass


def test_every_hook_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[tuple[object, str, object]] = []
    original = Patches.replace

    def note(self: Patches, owner: object, name: str, make: object) -> None:
        replaced.append((owner, name, vars(owner).get(name)))
        original(self, owner, name, make)  # type: ignore[arg-type]

    monkeypatch.setattr(Patches, "replace", note)
    environment = dict(os.environ)
    with intercept(lambda launch: None):
        unchanged = {name for owner, name, value in replaced if vars(owner)[name] is value}
        # The environment may have had these so before.
        assert unchanged <= {"_arch", "arch", "disable_file_caching", "lineinfo"}
    assert len(replaced) > 10
    assert all(vars(owner)[name] is value for owner, name, value in replaced)
    assert dict(os.environ) == environment
