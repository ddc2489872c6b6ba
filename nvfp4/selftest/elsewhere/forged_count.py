# family: 33
# caught: unverified: .*host code reads|touched \d+ distinct bytes
# needs: cpu
# only: benchmarks
# strategy: launch a kernel that does nothing, so that it is counted, and compute on the host

from nothing import launch_nothing
from right import right


def custom_kernel(data):
    launch_nothing()
    return right(data)
