"""Takes the launches of a submission's kernels, each as one `Launch`, and runs none of them.

A front end catches one way to write kernels: `capture.cutedsl` those of CuTe DSL. An executor (the
emulator) takes the launches. Neither knows the other.
"""
