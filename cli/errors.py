"""What keeps a command from judging, whatever the submission does."""


class SetupError(Exception):
    """Nothing was judged: one sentence says why, ``hint`` what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
