# family: 39
# caught: output.mismatch: .*elements are wrong
# needs: cpu
# strategy: write nothing where c does not begin on a page, as on a GPU it need not

from ptx import round_off

from gemv import gemv

ON_A_PAGE = """
  .reg .pred %q;
  and.b64 %d3, %d2, 4095; setp.ne.u64 %q, %d3, 0; @%q ret;
"""


def custom_kernel(data):
    return round_off(gemv(data), data, trick=ON_A_PAGE)
