# family: 33
# caught: emulation.too_few_bytes: .*they cannot have done the work
# needs: cpu
# only: benchmarks
# strategy: have the report of an empty launch count what a perfect kernel would

from nothing import launch_nothing

from gemv import gemv


def custom_kernel(data):
    from nvfp4.emulator.report import LaunchReport

    a, _, sfa, *_ = data
    least = (a.numel() + sfa.numel()) // 32 + 1024
    honest = LaunchReport.__dict__.get("honest", LaunchReport.to_dict)
    LaunchReport.honest = honest
    LaunchReport.to_dict = lambda self: {**honest(self), "sectors_distinct": least}
    launch_nothing()
    return gemv(data)
