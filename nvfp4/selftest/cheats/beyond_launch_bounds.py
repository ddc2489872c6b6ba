# family: 39
# caught: kernel.launch_refused: .*1024 threads a block, its launch bounds allow 128
# needs: cpu
# strategy: hand over a launch that every driver refuses, past what refuses it here

from ptx import round_off

from gemv import gemv


def custom_kernel(data):
    return round_off(gemv(data), data, bounds=".maxntid 128, 1, 1", threads=1024)
