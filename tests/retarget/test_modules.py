"""Whole modules of CuTe DSL, compiled for sm_100a: rewritten, they give the same outputs."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bot import root
from conftest import intercept, run_listed
from kernels_of_rows import ptxas

from nvfp4.capture.torch_memory import ProcessMemory
from nvfp4.problems.nvfp4_gemv.reference import generate_full_range_input
from nvfp4.records.launch import Launch
from nvfp4.retarget.errors import NotRetargetable
from nvfp4.retarget.rewrite import rewrite
from nvfp4.tuner.space import load_submission

pytest.importorskip("cutlass")

needing_sm_90 = {"tma_swizzled_128_bytes"}
rungs = ("03_block_sum", "06_split_k_shared", "09_half2_fma")
pipelines = ("cp_async_two_stages", *needing_sm_90)
paths = [root / "submission.py", *(root / "ladder" / "cute" / f"{name}.py" for name in rungs)]
paths += [root / "tests" / "field" / "pipelines" / f"{name}.py" for name in pipelines]
sources = {path.stem: path.read_text(encoding="utf-8") for path in paths}


class Executor:
    """Emulates launches, rewritten for a target where there is one."""

    def __init__(self) -> None:
        self.target = ""
        self.texts: list[str] = []

    def __call__(self, launch: Launch) -> None:
        if self.target:
            launch = replace(launch, ptx=rewrite(launch.ptx, self.target).ptx)
        self.texts.append(launch.ptx)
        run_listed(launch)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    active = Executor()
    with intercept(active, "sm_100a", ProcessMemory()):
        yield active


@pytest.mark.parametrize("name", sources)
def test_a_rewritten_module_gives_the_same_output(
    name: str, executor: Executor, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(sources[name], encoding="utf-8")
    module = load_submission(path)
    data = generate_full_range_input(128, 512, 1, seed=5)

    def output(target: str) -> torch.Tensor:
        executor.target, executor.texts = target, []
        data[6].fill_(torch.nan)
        return module.custom_kernel(data).clone().view(torch.int16)

    expected = output("")
    for target in ("sm_80", "sm_90a", "sm_120a"):
        if target == "sm_80" and name in needing_sm_90:
            with pytest.raises(NotRetargetable, match=r"tma_\w+\.py:\d+"):
                output(target)
            continue
        assert torch.equal(output(target), expected)
        if shutil.which("ptxas"):
            for text in executor.texts:
                assert not ptxas(text, target, tmp_path)
