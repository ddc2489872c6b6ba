"""st.async and red.async: stores to shared memory of the cluster that count at an mbarrier.

Each writes a few bytes later than it is executed, and tells an mbarrier beside them that they have
come. The copy engine does it here, in the proxy of threads.
"""

import numpy as np

from nvfp4.emulator.instructions import atomics, copy_engine
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, Source, instruction
from nvfp4.emulator.instructions.bulk_copies import COMPLETION, Way, copy_by_lane
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array, register_class, type_bits
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.memory import WRITTEN


@instruction("st.async")
def st_async(site: Site) -> Action:
    """st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.v2,.v4}.type [a], b, [mbar]."""
    site.only("async", "weak", "shared::cluster", COMPLETION, "v2", "v4", site.type())
    return _build(site, None)


@instruction("red.async")
def red_async(site: Site) -> Action:
    """red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.op.type [a], b,
    [mbar]."""
    known = ("async", "relaxed", "cluster", "shared::cluster", COMPLETION, site.type())
    site.only(*known, *atomics.OPERATIONS)
    return _build(site, atomics.update_of(site, "shared"))


def _build(site: Site, update: atomics.Update | None) -> Action:
    """update: (old, b, c) -> new; None: b."""
    if "shared::cluster" not in site.parts or COMPLETION not in site.parts:
        raise site.unsupported(f"{site.opcode}: only stores to shared::cluster are emulated")
    site.takes(3)
    items = site.items(1)
    cls = register_class(type_bits(site.type()) // 8)
    dtype = REGISTER_DTYPES[cls]
    nbytes = len(items) * dtype.itemsize
    way = Way(0, 1 + len(items))

    def move(at: LaneSite, values: list[int]) -> int:
        offset, place = copy_engine.shared_range(at, values[0], nbytes, nbytes, abroad=True)
        atomic = update is not None
        copy_engine.note(at, offset, nbytes, WRITTEN, by_threads=True, atomic=atomic)
        new = np.array(values[1 : 1 + len(items)], dtype)
        if update is not None:
            new = update(place.view(dtype), new, new)
        place[:] = new.view(np.uint8)
        return nbytes

    def run(ex: Execution, *values: Array) -> None:
        copy_by_lane(site, ex, values, move, way)

    sources = [Source(site.memory(0), "b64"), *(Source(item, cls) for item in items)]
    return Action("store", [*sources, Source(site.memory(2), "b64")], [], run)
