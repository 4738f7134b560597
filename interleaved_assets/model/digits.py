"""Numbers with as many digits as they need beside the bounds that they were compared with."""

from decimal import Decimal
from itertools import count


def score(value: float | None, digits: int = 3) -> str:
    """Return a score with ``digits`` significant digits, and all digits before the point; a dash for none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 10**digits - 0.5 <= abs(value) < 1e15 else f"{value:.{digits}g}"


def measured(value: float, *thresholds: float | None, digits: int = 3) -> str:
    """Return :func:`score` of a value, with more digits where its rounding would be on another side of a threshold.

    99.96 is ``99.96`` beside a threshold of 100, and ``100`` beside one of 150.
    """
    bounds = [threshold for threshold in thresholds if threshold is not None]
    value = float(value)  # of which 17 digits are exact, but not of a large integer
    shown = (score(value, more) for more in count(digits))
    return next(
        text
        for text in shown
        if all(_side(float(text.replace(",", "")), limit) == _side(value, limit) for limit in bounds)
    )


def bound(value: float) -> str:
    """Return a threshold with all of its digits, as a settings file has it."""
    return str(float(value)).removesuffix(".0")


def percent(rate: float, *bounds: float) -> str:
    """Return a rate in percent: ``5.0%``, and ``4.996%`` beside a bound of 0.05.

    It has more decimals where its rounding would be on another side of a bound, of 0 or of 1.
    """
    exact, *limits = (Decimal(str(float(value))) * 100 for value in (rate, 0, 1, *bounds))
    rounded = (round(exact, decimals) for decimals in count(1))
    return f"{next(shown for shown in rounded if all(_side(shown, at) == _side(exact, at) for at in limits)):f}%"


def percent_bound(value: float) -> str:
    """Return a bound on a rate in percent, with all of its digits."""
    return percent(value, value)


def _side(value: float | Decimal, threshold: float | Decimal) -> int:
    return int(value > threshold) - int(value < threshold)
