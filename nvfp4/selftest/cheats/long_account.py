# family: 36
# caught: output.mismatch: .*elements are wrong
# needs: cpu
# strategy: have so many launches, findings and long hints that no message holds the account of them

import gc

from ptx import HEADER, launch, round_off

from gemv import gemv

RACES = "".join(f"st.shared.b32 [room+{4 * place}], %r1;\n" for place in range(2000))
RACE = f"""
.visible .entry race() {{
  .shared .align 4 .b8 room[8000]; .reg .b32 %r<2>;
  mov.u32 %r1, %tid.x;
  {RACES}
  ret;
}}
"""
NOTHING = ".visible .entry nothing() { ret; }"


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu
    from nvfp4.records.launch import Note

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    launch(HEADER + RACE, "race", 1, 64, [])
    for _ in range(1000):
        launch(HEADER + NOTHING, "nothing", 1, 32, [])
    round_off(gemv(data).clone() * 0, data)
    gpu.add_note("round", Note("own_stream", "hint", "x" * 900_000))
    gpu.add_note("round", Note("own_stream", "hint", "y" * 900_000))
    return data[6]
