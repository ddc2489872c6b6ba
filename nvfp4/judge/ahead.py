"""Inputs of the next call, drawn during the call before."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from nvfp4.contract.referee import Drawn


class Ahead:
    """Draws the inputs of one call ahead.

    key: identifies the call; inputs of a call that was left out are dropped. `take` raises the
    exceptions of the drawing.
    """

    def __init__(self, beside: bool) -> None:
        """beside: whether to draw in a thread; otherwise inputs are drawn when taken."""
        self._pool = ThreadPoolExecutor(1) if beside else None
        self._next: tuple[object, Future[Drawn]] | None = None

    def prepare(self, key: object, draw: Callable[[], Drawn]) -> None:
        """Begin to draw the inputs of a call in another thread, for `take`."""
        if self._pool is not None:
            self._next = key, self._pool.submit(draw)

    def take(self, key: object, draw: Callable[[], Drawn]) -> Drawn:
        """Return what was drawn for this key, else draw."""
        prepared, self._next = self._next, None
        return prepared[1].result() if prepared is not None and prepared[0] == key else draw()

    def take_of(self, draws: Sequence[Callable[[], Drawn]], key: int) -> Drawn:
        """Return the inputs at this place of a sequence and prepare those after them."""
        drawn = self.take(key, draws[key])
        for draw in draws[key + 1 : key + 2]:
            self.prepare(key + 1, draw)
        return drawn

    def wait(self) -> None:
        """Wait until nothing is being drawn."""
        if self._next is not None:
            wait([self._next[1]])
