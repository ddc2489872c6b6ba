"""Where all tensors of a case lie on a CPU."""

from nvfp4.shared_memory.buffers import SharedBuffers, mapped_bytes, page_bytes


def whole_mapping(buffers: SharedBuffers) -> tuple[int, int]:
    """Address and size of the memory that a case's tensors on a CPU lie in."""
    sizes = {name: each.numel() for name, each in buffers.tensors.items()}
    first = next(iter(buffers.tensors.values()))
    return first.data_ptr() - page_bytes, mapped_bytes(sizes)
