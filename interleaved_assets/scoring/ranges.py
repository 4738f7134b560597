"""Ranges of scores: a value outside its range shows a defect of the scorer or its model."""

import math
from typing import Final, NamedTuple


class Range(NamedTuple):
    """The finite values that a score column may have, both ends included; for vectors, of their Euclidean lengths."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, low: float, high: float) -> bool:
        """Whether the range includes all values from ``low`` to ``high``."""
        return self.low <= low and high <= self.high

    def __str__(self) -> str:
        return f"{_end(self.low, 'any')} to {_end(self.high, 'any')}"


ABOVE_ZERO: Final = math.ulp(0.0)
"""The smallest float above 0: the lower bound of a range that excludes 0."""


def _end(value: float, unbounded: str) -> str:
    return unbounded if math.isinf(value) else "above 0" if value == ABOVE_ZERO else f"{value:g}"
