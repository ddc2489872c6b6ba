"""Texts that are expected word for word stand in files. WRITE=1 pytest ... writes them anew."""

import os
from pathlib import Path


def expect(path: Path, text: str) -> None:
    """Asserts that a file holds a text; writes it instead if WRITE is set in the environment."""
    if os.environ.get("WRITE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"WRITE=1 writes {path.name} anew"
