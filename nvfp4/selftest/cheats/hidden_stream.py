# family: 38
# caught: own_stream: .*own process says
# needs: cpu
# strategy: work on a stream that nobody waits for, and have that not noted

from ptx import round_off

from gemv import gemv


def custom_kernel(data):
    return round_off(gemv(data).clone(), data, stream=7)
