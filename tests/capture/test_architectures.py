"""Which architecture a submission's CUDA C++ is compiled for, as by torch and nvcc on a GPU."""

import pytest

from nvfp4.capture.cuda.architectures import Image, advice, nvccs_images, torchs_options

B200, H100 = (10, 0), (9, 0)
G = "-gencode=arch=compute_"


@pytest.mark.parametrize(
    ("flags", "listed", "b200"),
    [
        # torch's own choice: no suffix, machine code before PTX
        ([], None, "100>sm_100 100>compute_100"),
        (["-O3"], "native", "100>sm_100 100>compute_100"),
        # the submission's TORCH_CUDA_ARCH_LIST
        (["-O3"], "10.0a", "100a>sm_100a"),
        (["-O3"], "10.0 10.0a", "100a>sm_100a 100>sm_100"),
        (["-O3"], "8.0;9.0+PTX", "90>compute_90 80>sm_80 90>sm_90"),
        (["-O3"], "Hopper", "90>compute_90 90>sm_90"),
        # a flag wins over it, with whatever has "arch" in it
        ([f"{G}90a,code=sm_90a"], "10.0a", "90a>sm_90a"),
        (["-Xcompiler=-march=native"], "10.0a", "75>compute_75 75>sm_75"),
        # one image
        ([f"{G}100a,code=sm_100a"], None, "100a>sm_100a"),
        ([f"{G}100,code=sm_100"], None, "100>sm_100"),
        ([f"{G}100f,code=sm_100f"], None, "100f>sm_100f"),
        (["-gencode", "arch=compute_100a,code=sm_100a"], None, "100a>sm_100a"),
        (["-gencode arch=compute_100a,code=[sm_100a,compute_100a]"], None,
         "100a>sm_100a 100a>compute_100a"),
        ([f"{G}90,code=sm_100"], None, "90>sm_100"),
        (["-arch=sm_100a"], None, "100a>sm_100a 100a>compute_100a"),
        (["-arch", "compute_100"], None, "100>compute_100"),
        (["--generate-code=arch=compute_100a,code=[sm_100a,sm_90]"], None,
         "100a>sm_100a 100a>sm_90"),
        (["--gpu-architecture=native", "-lineinfo"], None, "100>sm_100"),
        (["-arch=compute_90", "-code=sm_100,compute_90"], None, "90>sm_100 90>compute_90"),
        (["-arch=sm_90", "-arch=sm_100a"], None, "100a>sm_100a 100a>compute_100a"),
        (["-arch=native"], None, "100>sm_100"),
        (["-arch=all-major"], None, "100>sm_100"),
        # several: machine code before PTX, a before f before none, the latest PTX
        ([f"{G}100,code=sm_100", f"{G}100a,code=sm_100a"], None, "100a>sm_100a 100>sm_100"),
        ([f"{G}100,code=sm_100", f"{G}100f,code=sm_100f"], None, "100f>sm_100f 100>sm_100"),
        ([f"{G}100a,code=compute_100a", f"{G}100,code=sm_100"], None,
         "100>sm_100 100a>compute_100a"),
        ([f"{G}90,code=sm_90", f"{G}100a,code=compute_100a"], None, "100a>compute_100a 90>sm_90"),
        ([f"{G}80,code=compute_80", f"{G}90,code=compute_90"], None,
         "90>compute_90 80>compute_80"),
        ([f"{G}103a,code=sm_103a", f"{G}100,code=sm_100"], None, "100>sm_100 103a>sm_103a"),
        # nothing that a B200 takes
        ([f"{G}120a,code=sm_120a"], None, "120a>sm_120a"),
    ],
)  # fmt: skip
def test_a_b200_loads_the_first_image(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], listed: str | None, b200: str
) -> None:
    if listed is not None:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    images = nvccs_images([*torchs_options(flags, B200), *flags], B200)
    assert " ".join(f"{a.removeprefix('compute_')}>{b}" for a, b in images) == b200


def test_torch_refuses_a_list_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "99.9")
    with pytest.raises(ValueError, match=r"99\.9"):
        torchs_options([], B200)


def test_an_h100_is_compiled_for_by_the_same_rule() -> None:
    assert nvccs_images(torchs_options([], H100), H100)[0] == Image("compute_90", "sm_90")
    assert nvccs_images([f"{G}90a,code=sm_90a", f"{G}100a,code=sm_100a"], H100)[0].made == "sm_90a"


@pytest.mark.parametrize(
    ("image", "arch"),
    [
        (Image("compute_90", "sm_100"), "sm_100"),
        (Image("compute_100f", "sm_100f"), "sm_100f"),
        (Image("compute_90", "compute_90"), "sm_100a"),  # by the driver
    ],
)
def test_what_machine_code_is_made_for(image: Image, arch: str) -> None:
    assert image.assembled(B200) == arch


@pytest.mark.parametrize(
    ("errors", "virtual", "helps"),
    [
        ("Feature 'cvt.f16x2.e2m1x2' not supported on .target 'sm_100'", "compute_100", True),
        ("Instruction 'tcgen05.alloc' not supported on .target 'sm_75'", "compute_75", True),
        ("Entry function 'k' uses too much shared data (0x13880 bytes, 0xc000 max)",
         "compute_100", True),
        ("Instruction 'wgmma' not supported on .target 'sm_100a'", "compute_100a", False),
        ("expected a ;", "compute_100", False),
    ],
)  # fmt: skip
def test_errors_of_an_architecture_name_the_flag_that_helps(
    errors: str, virtual: str, helps: bool
) -> None:
    said = advice(errors, virtual, B200)
    flag = 'extra_cuda_cflags=["-gencode=arch=compute_100a,code=sm_100a"]'
    assert (said is not None and said.endswith(flag)) is helps
