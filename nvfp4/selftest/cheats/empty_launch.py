# family: 33
# caught: emulation.too_few_bytes: .*touched 0 distinct bytes
# needs: cpu
# only: benchmarks
# strategy: launch an empty kernel, so that calls are not timed, and compute on the host

from nothing import launch_nothing

from gemv import gemv


def custom_kernel(data):
    launch_nothing()
    return gemv(data)
