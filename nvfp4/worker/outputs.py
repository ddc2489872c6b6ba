"""Checks the output of custom_kernel, and packs the tree that is sent for it."""

from typing import Any

import torch

from nvfp4.contract.tree import TAKEN, Leaf, Tree, TreeError, flatten, name_of, packed, tensors_of


class Refused(Exception):
    """The submission broke the contract. code, arguments: those of the failure."""

    def __init__(self, code: str, message: str, **arguments: object) -> None:
        super().__init__(message)
        self.code, self.arguments = code, arguments


def output_tree(output: Any, expected: Tree | None, device: str, room_bytes: int) -> Tree:
    """Return the packed tree of an output of custom_kernel. Raises Refused if the contest would not
    accept it. expected: None if the problem's checker takes more than one structure."""
    wanted = expected.single if expected is not None else None
    if output is None or (wanted is not None and not isinstance(output, torch.Tensor)):
        raise _refused("None" if output is None else f"a {type(output).__name__}", wanted, device)
    found = tensors_of(output)
    for number, tensor in enumerate(found):
        leaf = wanted
        if expected is not None and len(found) == len(expected.leaves):
            leaf = expected.leaves[number]
        _refuse_other(tensor, leaf, device)
    if expected is not None and len(found) != len(expected.leaves):
        message = f"custom_kernel returned {len(found)} tensors, expected {len(expected.leaves)}"
        raise Refused("contract.returned", message, returned=f"{len(found)} tensors")
    try:
        tree = packed(flatten(output, "output")[0])
    except TreeError as error:
        message = f"custom_kernel returned what is no output: {error}"
        raise Refused("contract.returned", message) from None
    nbytes = sum(storage.nbytes for storage in tree.storages)
    if nbytes > room_bytes:
        message = f"custom_kernel returned {nbytes} bytes, and an output has {room_bytes} at most"
        raise Refused("contract.returned", message, returned=f"{nbytes} bytes")
    return tree


def _refuse_other(output: torch.Tensor, leaf: Leaf | None, device: str) -> None:
    returned = None
    if type(output) not in (torch.Tensor, torch.nn.Parameter):
        returned = f"a {type(output).__name__}"
    elif output.layout != torch.strided:
        returned = f"a tensor with layout {output.layout}"
    elif leaf is not None and name_of(output.dtype) not in (leaf.dtype, *TAKEN):
        returned = f"dtype {output.dtype}"
    elif leaf is not None and list(output.shape) != leaf.shape:
        returned = f"shape {list(output.shape)}"
    elif output.is_neg() or output.is_conj():
        returned = "a view that is negated or conjugated when it is read"
    elif output.device.type != device:
        returned = f"a tensor on {output.device}"
    if returned:
        raise _refused(returned, leaf, device)


def _refused(returned: str, leaf: Leaf | None, device: str) -> Refused:
    expected = f"a tensor on {device}"
    hint = ""
    if leaf is not None:
        expected = f"a {leaf.dtype} tensor {leaf.shape} on {device}"
        hint = f": return {leaf.path}" if returned == "None" and leaf.path.isidentifier() else ""
    message = f"custom_kernel returned {returned}, expected {expected}{hint}"
    return Refused("contract.returned", message, returned=returned)
