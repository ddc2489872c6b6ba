# family: 38
# caught: shared_race: .*
# needs: cpu
# strict: yes
# strategy: put remarks that fail nothing in front of a race, so that --strict does not come to it

import gc

from nothing import launch_nothing
from racy import racy

from gemv import gemv


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu
    from nvfp4.records.launch import Note

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    result = gemv(data).clone()
    launch_nothing()
    for number in range(40):
        gpu.add_note("nothing", Note("own_stream", f"{number} " + "x" * 200))
    return racy(result, data)
