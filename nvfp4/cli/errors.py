"""What keeps a command from judging, whatever the submission does."""


class SetupError(Exception):
    """Nothing was judged: one sentence says why, ``hint`` what to do about it. code: for programs,
    see docs/codes.md.
    """

    code = "setup"

    def __init__(self, message: str, hint: str, code: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code or self.code


passed, failed, setup = 0, 1, 2
"""setup: nothing could be judged."""

unclear = 3
"""Nothing is wrong as far as was judged, but not all of it could be judged. Of nvfp4 compare: it
cannot be told which is faster. failed is also: slower."""

unread = 141
"""The output's reader is gone: as a shell reports a program that a broken pipe has ended."""
