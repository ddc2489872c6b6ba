# family: 36
# caught: output.mismatch: .*elements are wrong
# needs: cpu
# strategy: ask the emulated GPU for so many answers, none of which is read, that it waits for ever

import gc
import json


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    line = json.dumps({"kind": "Nonsense"}).encode() + b"\n"

    def flood(*_):
        gpu._link._channel._socket.settimeout(2)
        try:
            for _ in range(20000):
                gpu._link._channel._socket.sendall(line)
        except OSError:
            pass

    gpu.hand_over = flood
    return data[6]
