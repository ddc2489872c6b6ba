"""The error of a prediction that is not possible."""


class NoPrediction(Exception):
    """A call has no predicted time; the message says why in a sentence."""
