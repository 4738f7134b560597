"""Numbers and names in the reports."""

import pytest

from interleaved_assets.reporting.wording import text


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (0, 10, "0.0 %"),
        (10, 10, "100.0 %"),
        (1, 3, "33.3 %"),
        (1, 100_000, "< 0.1 %"),
        (99_999, 100_000, "> 99.9 %"),
        (0.5, 1, "50.0 %"),
        (0, 0, "–"),
        (None, 5, "–"),
        (1, 16, "6.3 %"),
        (3, 16, "18.8 %"),
        (3, 2000, "0.1 %"),
    ],
)
def test_share(part: float | None, whole: float, expected: str) -> None:
    assert text.share(part, whole) == expected


def test_numbers() -> None:
    assert text.count(1234567) == "1,234,567"
    assert text.compact(999_999) == "999,999"
    assert text.compact(12_345_678) == "12.3 M"
    assert [text.score(value) for value in (None, 0.0, 0.051234, 41.26, 1234.5, -2000.0)] == [
        "–",
        "0",
        "0.0512",
        "41.3",
        "1,234",
        "-2,000",
    ]
    assert text.score(float("inf")) == "inf"
    assert [text.score(value) for value in (999.4, 999.7, 12_345.6)] == ["999", "1,000", "12,346"]
    assert [text.score(value, 4) for value in (999.74, 9999.7, 29_789.0)] == ["999.7", "10,000", "29,789"]


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
    ],
)
def test_a_measured_value_reads_on_its_side_of_the_threshold(
    value: float, threshold: float | None, expected: str
) -> None:
    assert text.measured(value, threshold) == expected


def test_a_threshold_has_all_digits() -> None:
    values = (0.05, 150.0, 1_000_000.0, 1_234_567.0, float("inf"), -0.02)
    assert [text.bound(value) for value in values] == ["0.05", "150", "1000000", "1234567", "inf", "-0.02"]
