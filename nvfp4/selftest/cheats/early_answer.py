# family: 7
# caught: output.mismatch: [\s\S]*in calls queued behind each other|timing.clocks_disagree
# needs: cuda
# strategy: forge every time and tell the judge's own clock to stop before the calls are done

import gc

import torch

from gemv import gemv


def forged_time(self, call):
    from nvfp4.gpu import timing

    result = call()
    torch.cuda.synchronize()
    return result, timing.CallTime(60e3, 65e3)


def custom_kernel(data):
    from nvfp4.gpu import timing
    from nvfp4.records.messages import AwaitQueue, Done
    from nvfp4.worker.gated_calls import GatedCalls

    timing.CudaTimer.time = forged_time
    for each in gc.get_objects():
        if type(each) is GatedCalls:
            each._runner.operations[AwaitQueue] = lambda request, fd: Done()
    return gemv(data)
