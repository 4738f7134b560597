import math

import pytest

from interleaved_assets.scoring.protocol.scorer import ABOVE_ZERO, Range


@pytest.mark.parametrize(
    ("allowed", "low", "high", "holds"),
    [
        (Range(0, 1), 0, 1, True),
        (Range(0, 1), 0, 1.0000001, False),
        (Range(0, 1), -1e-9, 1, False),
        (Range(low=0), 0, 1e300, True),
        (Range(), -1e300, 1e300, True),
        (Range(low=ABOVE_ZERO), 0, 1, False),
        (Range(low=ABOVE_ZERO), 1e-300, 1, True),
    ],
)
def test_both_ends_are_included(allowed: Range, low: float, high: float, holds: bool) -> None:
    assert allowed.holds(low, high) is holds


def test_ranges_as_text() -> None:
    assert [str(found) for found in (Range(0, 1), Range(low=-1), Range(high=0.5), Range(low=ABOVE_ZERO))] == [
        "0 to 1",
        "-1 to any",
        "any to 0.5",
        "above 0 to any",
    ]
    assert Range() == (-math.inf, math.inf)
