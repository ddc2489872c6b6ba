"""Whole kernels for sm_100a, rewritten for this GPU: their outputs against the emulator's."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from nvfp4 import retargeting
from nvfp4.tuner.space import load_submission
from scripts.retargeting.cases import FILES, bits, recorded, to_cuda


def main() -> int:
    """Prints a JSON object; 1 if bits differ."""
    recording = recorded()
    kernels: dict[str, Any] = {}
    with retargeting.install("sm_100a") as active:
        for path in FILES:
            known = len(active.kernels())
            outputs = recording["outputs"][path.stem]
            found: dict[str, Any] = {"cases": len(outputs), "same": 0}
            try:
                submission = load_submission(path)
                for name, expected in outputs.items():
                    data = to_cuda(recording["cases"][name])
                    data[6].fill_(torch.nan)
                    output = bits(submission.custom_kernel(data))
                    if torch.equal(output, expected):
                        found["same"] += 1
                    else:
                        found.setdefault("different", []).append(
                            [name, int((output != expected).sum()), output.numel()]
                        )
            except Exception as error:
                found["error"] = f"{type(error).__name__}: {error}"[:1500]
            found["rewritten"] = active.kernels()[known:][:2]
            kernels[path.stem] = found
    passed = all(found["cases"] == found["same"] > 0 for found in kernels.values())
    print(json.dumps({"passed": passed, "kernels": kernels}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
