"""The clusters of a launch that have not started: they do in batches, unless they are cancelled."""

import numpy as np

from nvfp4.emulator.ptx.types import Array


class ClusterQueue:
    """clusters: the linear CTA numbers of each cluster, int64[clusters, CTAs], in the order in
    which they start."""

    def __init__(self, clusters: Array) -> None:
        self._clusters = clusters
        self._at = 0

    def __len__(self) -> int:
        return len(self._clusters) - self._at

    def start(self, ctas: int) -> Array:
        """The CTAs of the next clusters, so many in all, or fewer at the end."""
        begun = self._clusters[self._at : self._at + max(1, ctas // self._clusters.shape[1])]
        self._at += len(begun)
        return begun.reshape(-1)

    def cancel(self) -> int | None:
        """The next cluster does not start: the number of its first CTA. None if all have."""
        if not len(self):
            return None
        self._at += 1
        return int(self._clusters[self._at - 1].min())


NONE_WAITS = ClusterQueue(np.zeros((0, 1), np.int64))
