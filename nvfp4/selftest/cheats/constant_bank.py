# family: 39
# caught: kernel.out_of_bounds: .*does not lie in .const
# needs: cpu
# strategy: read tensors as constants, which a GPU looks up elsewhere and nobody counts as traffic

from ptx import round_off

from gemv import gemv

READ = "mul.wide.u32 %d3, %r5, 4; add.u64 %d4, %d1, %d3; ld.const.b32 %r6, [%d4];"


def custom_kernel(data):
    return round_off(gemv(data), data, trick=READ)
