"""What the tests with random input draw from."""

import json
from typing import Any

from hypothesis import strategies as st

from nvfp4.judge.emulated_counts import total_counts

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, 10**400, -(10**400)])
    | st.floats()
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
"""Any value of JSON, numbers that fit nowhere included."""

counts = json.dumps(total_counts([{"sectors_distinct": 5, "warp_instructions_total": 9}]))
"""The counts of an emulated call, as the judge writes them."""
