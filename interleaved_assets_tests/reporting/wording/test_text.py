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
