"""How long a case will take, from those that were finished before."""

from dataclasses import dataclass, field

from nvfp4.cli.problem import Shape


@dataclass
class Expectation:
    """Seconds of finished cases by shape. A case takes what its shape took before; where that is
    unknown, a start-up time plus a time for each element of a, fitted to the shapes that are known.
    """

    _seconds: dict[Shape, float] = field(default_factory=dict)

    def note(self, shape: Shape, seconds: float) -> None:
        """A case took so long."""
        self._seconds[shape] = seconds

    def seconds(self, shape: Shape) -> float | None:
        """None as long as fewer than two sizes are known."""
        if shape in self._seconds:
            return self._seconds[shape]
        points = [(_elements(each), seconds) for each, seconds in self._seconds.items()]
        if len({elements for elements, _ in points}) < 2:
            return None
        mean_elements = sum(elements for elements, _ in points) / len(points)
        mean_s = sum(seconds for _, seconds in points) / len(points)
        spread = sum((elements - mean_elements) ** 2 for elements, _ in points)
        common = sum((elements - mean_elements) * (s - mean_s) for elements, s in points)
        slope = max(0.0, common / spread)
        return max(0.0, mean_s + slope * (_elements(shape) - mean_elements))


def _elements(shape: Shape) -> int:
    return shape.m * shape.k * shape.l
