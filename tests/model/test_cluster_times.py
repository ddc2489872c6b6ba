"""Thread blocks that cannot run without the others of their cluster."""

from dataclasses import replace

import pytest
from model_kernels import MISSING, count
from twins import kernel

from nvfp4.model.errors import NoPrediction
from nvfp4.model.prediction import GPUS, predict

pytestmark = pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")

EXCHANGE = kernel(
    """
    mov.u32 %r8, room;
    mul.wide.u32 %d2, %r3, 4;
    add.u64 %d3, %d0, %d2;
    ld.global.u32 %r9, [%d3];
    st.shared.u32 [%r8], %r9;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %r10, %cluster_ctarank;
    xor.b32 %r10, %r10, 1;
    mapa.shared::cluster.u32 %r11, %r8, %r10;
    ld.shared::cluster.u32 %r100, [%r11];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    """,
    directives=".reqnctapercluster 2, 1, 1",
    before=".shared .align 4 .b8 room[4];",
)


def test_a_kernel_of_clusters_has_a_time_and_what_it_reads() -> None:
    counted = count(EXCHANGE, 296, 32)
    assert any(asked.fresh for asked in counted.work.asked.values())
    assert 3.5 < predict(GPUS["B200"], [counted]).us < 10


def test_there_is_no_time_where_thread_blocks_cannot_run_without_others() -> None:
    counted = replace(count(EXCHANGE, 296, 32), samples=None)
    with pytest.raises(NoPrediction, match="wait for each other"):
        predict(GPUS["B200"], [counted])
