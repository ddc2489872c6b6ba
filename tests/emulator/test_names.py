"""Names of kernels as nvcc and CuTe DSL generate them, and what people read instead."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_harness import HEADER
from ptx_runs import run_ptx

from nvfp4.emulator import errors
from nvfp4.records.texts import LONGEST, demangled, plain, short_name


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("gemv_kernel", "gemv_kernel"),
        ("_Z5plainPK7__half2yPFviERA4_i", "plain"),
        ("_ZL6staticPi", "static"),
        ("_ZN2ns4kernIfLi4ELb1EEEvPT_NS_1SIXT0_ES1_EEPK6float4", "ns::kern<float, 4, true>"),
        ("_ZN2ns4kernI6__halfLi3ELb0EEEvPT_", "ns::kern<__half, 3, false>"),
        ("_ZN36_GLOBAL__N__d14ea6f9_4_t_cu_da4915c74anonEPi", "(anonymous namespace)::anon"),
        ("_Z4packIJiPfPKcEEvDpT_", "pack<int, float*, char const*>"),
        ("_Z1kILin4EEvv", "k<-4>"),
        ("_Z2enIL1E1ELj5EEvv", "en<(E)1, 5>"),
        ("_Z2ttIN2Op2InES0_EvT_IiET0_", "tt<Op::In, Op>"),
        ("_ZN3foo3barISt5arrayIiLm4EES2_EEvv", "foo::bar<std::array<int, 4>, std::array<int, 4>>"),
        ("_Z1fIPFviES0_PA3_iEvv", "f<void (*)(int), void (int), int (*) [3]>"),
        ("_Z1gI13__nv_bfloat16EvPKT_", "g<__nv_bfloat16>"),
        ("_Z1hIKPVjRKxEvv", "h<unsigned int volatile* const, long long const&>"),
    ],
)
def test_a_cpp_name_is_demangled(mangled: str, name: str) -> None:
    assert short_name(mangled) == demangled(mangled) == name


@pytest.mark.parametrize("name", ["_Z", "_Z4ab", "_ZN1a", "_Z1fIS9_E"])
def test_a_name_that_is_not_understood_stays(name: str) -> None:
    assert demangled(name) == short_name(name) == name


@given(st.text("ZNISTEJLPKRAFX_0123456789abijfv", max_size=40))
def test_any_text_is_answered(rest: str) -> None:
    assert demangled("_Z" + rest)


def test_a_very_long_cpp_name_loses_its_arguments() -> None:
    types = "".join(f"{len(name)}{name}" for name in (f"SomeLongTypeName{n}" for n in range(10)))
    mangled = f"_ZN7cutlass13device_kernelINS_4gemm6kernelIJ{types}EEEEEvv"
    assert len(demangled(mangled)) > LONGEST
    assert short_name(mangled) == "cutlass::device_kernel<...>"


@pytest.mark.parametrize(
    ("generated", "name"),
    [
        ("kernel_cutlass_plain_0", "plain"),
        (
            "kernel_cutlass_gemv_kernel_tensorptrf4E2M1FNgmemalign16odiv64div641div64_0",
            "gemv_kernel",
        ),
        ("kernel_cutlass_bad_tensorptrf32gmemalign16o321_tensorptrf32gmemalign16o321__0_12", "bad"),
        ("kernel_cutlass_kernel_subGemv_object_at_________0", "kernel"),
        ("kernel_cutlass_k_None_128_0", "k"),
        ("kernel_cutlass_gemv_128_0", "gemv_128"),
        ("kernel_cutlass_gemv_CopyAtom_ThrID10_TVLayoutSrc1102401_Valuetypei32_0", "gemv"),
        ("kernel_cutlass_tensor_sum_tensorptrf32gmemalign16o321_0", "tensor_sum"),
    ],
)
def test_a_name_of_cute_dsls_is_cut_to_the_functions(generated: str, name: str) -> None:
    assert short_name(generated) == name


def test_messages_have_the_short_name_and_records_the_whole() -> None:
    name = "_Z4kernIfLi4EEvPT_"
    text = f"{HEADER}.visible .entry {name}() {{ .shared .b32 s; .reg .b32 %r<9>; .reg .b64 %d<2>;"
    text += " .reg .pred %p;"
    text += " mov.u32 %r1, s; ld.shared.u32 %r2, [%r1]; setp.eq.u32 %p, %r2, 0;"
    text += " @%p bra N; N: ret; }"
    report = run_ptx(text, name, (1,), (32,), [])
    assert report.kernel == report.findings[0].kernel == name
    assert report.to_dict()["short_name"] == "kern<float, 4>"
    fault = "mov.u64 %d1, 64; ld.global.u32 %r2, [%d1];"
    with pytest.raises(errors.OutOfBounds) as caught:
        run_ptx(text.replace("ld.shared.u32 %r2, [%r1];", fault), name, (1,), (32,), [])
    assert "in kernel kern<float, 4>, CTA" in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.kernel == name


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("nvcc -I/tmp/a1/b -o /var/tmp/a1/k.o", "nvcc -Ib -o k.o"),
        ("no file '/tmp/k.cu'", "no file 'k.cu'"),
        ("open /home/me/tmp/data/k.bin", "open /home/me/tmp/data/k.bin"),
    ],
)
def test_scratch_folders_are_cut_out_of_messages(written: str, read: str) -> None:
    assert plain(written, Path("/work/submission.py"), "submission.py") == read
