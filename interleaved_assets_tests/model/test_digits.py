"""Digits of numbers beside their bounds."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model import digits

NUMBERS = st.floats(allow_nan=False) | st.integers(-(10**18), 10**18).map(float) | st.floats(0, 1)
SHARES = st.floats(0, 1)


def test_scores() -> None:
    assert [digits.score(value) for value in (None, 0.0, 0.051234, 41.26, 1234.5, -2000.0)] == [
        "–",
        "0",
        "0.0512",
        "41.3",
        "1,234",
        "-2,000",
    ]
    assert digits.score(float("inf")) == "inf"
    assert [digits.score(value) for value in (999.4, 999.7, 12_345.6)] == ["999", "1,000", "12,346"]
    assert [digits.score(value, 4) for value in (999.74, 9999.7, 29_789.0)] == ["999.7", "10,000", "29,789"]


@pytest.mark.parametrize(
    ("value", "threshold", "expected"),
    [
        (41.25, 100.0, "41.2"),
        (99.96, 100.0, "99.96"),
        (100.0, 100.0, "100"),
        (100.049, 100.04, "100.05"),
        (0.29999999, 0.3, "0.29999999"),
        (20_001.0, 20_000.0, "20,001"),
        (1_000_000.4, 1_000_000.0, "1000000.4"),
        (float("inf"), 5.0, "inf"),
        (-0.0204, -0.02, "-0.0204"),
        (41.25, None, "41.2"),
        (10**16 + 1, 1e16, "1e+16"),  # an integer that no float is
    ],
)
def test_a_measured_value_reads_on_its_side_of_the_threshold(
    value: float, threshold: float | None, expected: str
) -> None:
    assert digits.measured(value, threshold) == expected


def test_a_threshold_has_all_digits() -> None:
    values = (0.05, 150.0, 1_000_000.0, 1_234_567.0, float("inf"), -0.02, 1 / 3, 12345)
    expected = "0.05 150 1000000 1234567 inf -0.02 0.3333333333333333 12345"
    assert [digits.bound(value) for value in values] == expected.split()


@pytest.mark.parametrize(
    ("rate", "bounds", "expected"),
    [
        (0.0, (), "0.0%"),
        (1.0, (), "100.0%"),
        (12 / 13, (), "92.3%"),
        (0.04996, (0.05,), "4.996%"),
        (0.05, (0.05,), "5.0%"),
        (0.07, (0.07, 0.3), "7.0%"),
        (0.30004, (0.07, 0.3), "30.004%"),
        (1 / 30_000, (0.05,), "0.003%"),
        (29_999 / 30_000, (0.9999,), "99.997%"),
        (1e-9, (), "0.0000001%"),
    ],
)
def test_percent(rate: float, bounds: tuple[float, ...], expected: str) -> None:
    assert digits.percent(rate, *bounds) == expected


def near(value: float, steps: int) -> float:
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    return value


def order(one: float | Decimal, other: float | Decimal) -> int:
    return (one > other) - (one < other)


@given(NUMBERS, NUMBERS, st.integers(-3, 3))
def test_a_shown_value_is_on_the_side_of_the_shown_threshold_on_which_it_is(
    value: float, threshold: float, steps: int
) -> None:
    for one in (value, near(threshold, steps)):
        shown = float(digits.measured(one, threshold).replace(",", ""))
        assert order(shown, float(digits.bound(threshold))) == order(one, threshold)


@given(SHARES, SHARES, st.integers(-3, 3))
def test_a_shown_rate_is_on_the_side_of_the_shown_bound_on_which_it_is(rate: float, limit: float, steps: int) -> None:
    for one in (rate, min(max(near(limit, steps), 0.0), 1.0)):
        shown, bound = (Decimal(text.rstrip("%")) for text in (digits.percent(one, limit), digits.percent_bound(limit)))
        assert order(shown, bound) == order(one, limit)
