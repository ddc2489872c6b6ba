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
