# family: 36
# caught: output.mismatch: .*elements are wrong
# needs: cpu
# strategy: ask the emulated GPU for what no worker asks, so that it ends or takes the blame

import gc

from ptx import HEADER, ROUND


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu
    from nvfp4.records import gpu_messages as asked
    from nvfp4.records.launch_errors import KernelFault

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    text = gpu._text(HEADER + ROUND.replace("TRICK", "").replace("BOUNDS", ""))
    launch = {
        "text": text, "kernel": "round", "grid": (1, 1, 1), "block": (32, 1, 1),
        "cluster": (1, 1, 1), "shared_bytes": 0, "stream": 0, "programmatic": False,
        "waited": 0, "alongside": False, "trial": False, "parameters": [], "notes": [],
        "place": [], "with_suffix": None,
    }  # fmt: skip
    c, far = data[6].data_ptr(), 1 << 45
    forged = [
        *(
            asked.Start(**{**launch, **changes})
            for changes in (
                {"text": 1 << 20}, {"parameters": ["zz"]}, {"grid": [1]}, {"block": [32, 1]},
                {"shared_bytes": -4096}, {"cluster": [-1, -1, 1]}, {"notes": [["code"]]},
                {"with_suffix": 1 << 20}, {"kernel": "x" * 500_000},
            )
        ),
        *(asked.Read(address, nbytes, []) for address, nbytes in ((c, -8), (-1, 8), (c, 1 << 40))),
        *(asked.Write(spans) for spans in ([[c]], [[c, -8]], [[c, 8, 8]], [[c, 8], [c, 1 << 30]])),
        asked.Copy(c, c, -8),
        asked.HandOver(c, 0, 2, [1] * 200, [0] * 200, 0, 0, []),
        asked.SetRegions([["short"]], []),
        asked.SetRegions([["view", far, 4096, True, [[1], [2, 3], 0]]], []),
        asked.Share(far, 4096),
        asked.FindVariable(-1, "counter"),
        asked.Examine(1 << 20, "round"),
        asked.AddNote("round", ["code"]),
    ]  # fmt: skip
    for each in forged:
        try:
            gpu._ask(each)
        except KernelFault as fault:
            if fault.failure["code"] == "kernel.emulator_failed":
                raise
    return data[6]
