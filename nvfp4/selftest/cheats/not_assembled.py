# family: 39
# caught: kernel.launch_refused: .*ptxas refuses the PTX
# needs: cpu
# strategy: hand over PTX with a register declared twice, which no assembler takes

from kernels import launched_gemv


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu
    from nvfp4.records.launch import Launch

    def launch(self, said, honest=EmulatedGpu.launch):
        twice = said.ptx.replace("\n\tret;", "\n\t.reg .b32 \t%zz;\n\t.reg .b32 \t%zz;\n\tret;")
        honest(self, Launch(**{**vars(said), "ptx": twice}))

    if EmulatedGpu.launch.__module__ != __name__:
        EmulatedGpu.launch = launch
    return launched_gemv(data)
