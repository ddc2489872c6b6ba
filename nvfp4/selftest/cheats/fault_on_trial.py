# family: 38
# caught: kernel.out_of_bounds: .*outside every tensor
# needs: cpu
# strategy: write out of bounds in a configuration that is tried, and catch the error

import contextlib
import struct

from ptx import HEADER

from gemv import gemv

TEXT = f"""{HEADER}
.visible .entry far(.param .u64 c)
{{
  .reg .b64 %d<2>;
  ld.param.u64 %d1, [c];
  st.global.b32 [%d1+1073741824], 1;
  ret;
}}
"""


def custom_kernel(data):
    import gc

    from nvfp4.capture.cuda.runtime import RUNTIME
    from nvfp4.records.launch import Launch
    from nvfp4.worker.emulated_runner import ForwardedLaunches

    launches = next(each for each in gc.get_objects() if type(each) is ForwardedLaunches)
    parameters, one = [struct.pack("<Q", data[6].data_ptr())], (1, 1, 1)
    with contextlib.suppress(Exception):
        launches._take(Launch(TEXT, "far", one, one, parameters, memory=RUNTIME, trial=True))
    return gemv(data)
