# family: 39
# caught: ptxas refuses the PTX
# needs: cpu
# strategy: hand over PTX with a register declared twice, which no assembler takes

from kernels import launched_gemv


def custom_kernel(data):
    from nvfp4.capture.recording import Recorder
    from nvfp4.records.launch import Launch

    def launch(self, said, honest=Recorder.launch):
        twice = said.ptx.replace("\n\tret;", "\n\t.reg .b32 \t%zz;\n\t.reg .b32 \t%zz;\n\tret;")
        honest(self, Launch(**{**vars(said), "ptx": twice}))

    if Recorder.launch.__module__ != __name__:
        Recorder.launch = launch
    return launched_gemv(data)
