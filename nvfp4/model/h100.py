"""An H100 SXM, by `python -m scripts.microbench`; what comes from elsewhere names its source."""

from nvfp4.model.gpu import Gpu

_KIB = 1024

H100 = Gpu(
    name="H100",
    arch="sm_90a",
    sms=132,
    clock_mhz=1755,
    launch_us=2.6,
    kernel_gap_us=1.0,
    cta_dispatch_ns=0.49,
    cta_start=300,
    warps=64,
    ctas=32,
    registers=65536,
    shared_bytes=228 * _KIB,
    reserved_shared_bytes=_KIB,
    clean=((8 * _KIB, 1600), (16 * _KIB, 2500), (24 * _KIB, 2850), (32 * _KIB, 3000)),
    dirty=((8 * _KIB, 1600), (16 * _KIB, 2400), (24 * _KIB, 2500), (32 * _KIB, 2550)),
    dirty_bytes=50 << 20,
    dram_latency_ns=480,
    l2_latency=262,
    l1_latency=33,
    shared_latency=30,
    l2_port_bytes=64,
    l2_gbps=5700,
    l1_bytes=128,
    l1_tags=4,
    cold_line=40,
    barrier=24,
    branch=8,
    fma=1,
    half=1,
    packed=2,
    imad=2,
    alu=2,
    unpack=2,
    xu=8,
    tensor=8,
    uncertainty=0.2,
)
