"""Wrong outputs: where they are wrong, and the likely cause.

A cause is named only when computing with that mistake reproduces wrong elements that luck would
not, so the message is evidence and not a guess.
"""
