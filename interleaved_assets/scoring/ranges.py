"""The values that a score can have: what lies outside is no measurement but a defect of the scorer or its model."""

import math
from typing import Final, NamedTuple


class Range(NamedTuple):
    """The values that a column of scores may have, both ends included; none of them is infinite or NaN.

    Of a column of vectors, their Euclidean lengths.
    """

    low: float = -math.inf
    high: float = math.inf

    def holds(self, low: float, high: float) -> bool:
        """Whether all values from ``low`` to ``high`` lie within."""
        return self.low <= low and high <= self.high

    def __str__(self) -> str:
        return f"{_end(self.low, 'any')} to {_end(self.high, 'any')}"


ABOVE_ZERO: Final = math.ulp(0.0)
"""The smallest number above 0: the low end of what is greater than 0."""


def _end(value: float, unbounded: str) -> str:
    return unbounded if math.isinf(value) else "above 0" if value == ABOVE_ZERO else f"{value:g}"
