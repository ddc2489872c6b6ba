"""Why there is no predicted time."""


class NoPrediction(Exception):
    """Why a call has no predicted time, in a sentence."""
