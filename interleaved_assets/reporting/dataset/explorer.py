"""Input of the threshold explorer of the report: thresholds to choose from for each bound, with exact counts."""

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Annotated, Final, NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError

from interleaved_assets.reporting.figures.distribution import Distribution, Gap
from interleaved_assets.scoring.protocol.filter import Side
from interleaved_assets.selection.filters import BUILT_IN
from interleaved_assets.selection.settings import SelectionSettings, bound_settings

STEPS: Final = 280
"""Most thresholds that a slider offers."""
_TICKS: Final = 5


class Step(NamedTuple):
    """A threshold, and the exact number of values that it drops."""

    threshold: float | int
    dropped: int


class Slider(NamedTuple):
    """One bound of one score.

    Attributes:
        name, label, unit: as in the measure of the score.
        setting: name below ``selection``, such as ``min_sharpness`` or ``own.brightness.min``.
        sign: sign of the rule, such as ``≥``.
        values: number of values; ``missing`` more images have none.
        steps: thresholds in ascending order.
        in_force: the bound of the settings; None without one.
        is_folded: as in the measure of the score.
    """

    name: str
    label: str
    unit: str
    setting: str
    side: Side
    sign: str
    values: int
    missing: int
    steps: list[Step]
    in_force: Step | None
    is_folded: bool

    @property
    def ticks(self) -> list[float | int]:
        """Thresholds for the axis below the slider, evenly spread over its stops, not over the values."""
        last = len(self.steps) - 1
        parts = min(_TICKS - 1, last)
        return [self.steps[round(part * last / parts)].threshold for part in range(parts + 1)]


def sliders(distributions: Sequence[Distribution], selection: SelectionSettings) -> list[Slider]:
    """Return the bounds that can be explored: those of scores with values, whose filters the settings apply."""
    return [
        slider
        for distribution in distributions
        if distribution.measure.filter in selection.full_order() or distribution.measure.filter not in BUILT_IN
        for slider in _sliders(distribution)
        if len(slider.steps) > 1
    ]


def _sliders(distribution: Distribution) -> Iterator[Slider]:
    measure, gaps = distribution.measure, distribution.gaps(STEPS)
    for side, setting in zip(get_args(Side), bound_settings(measure.filter), strict=True):
        if setting is None or not gaps:
            continue
        is_allowed = _validator(setting, is_whole=measure.is_whole)
        bound: float | None = getattr(measure, side)
        # values equal to an inclusive maximum are kept, so they are below it; values equal to any other bound are above
        # it
        inclusive = side == "maximum" and not measure.judge.open_maximum
        steps = [
            Step(threshold, gap.below if side == "minimum" else distribution.count - gap.below)
            for gap in gaps
            if (threshold := _threshold(gap, inclusive=inclusive, is_allowed=is_allowed)) is not None
        ]
        in_force = None
        if bound is not None:
            in_force = Step(bound, distribution.below if side == "minimum" else distribution.above)
        yield Slider(
            measure.filter,
            measure.shown.label,
            measure.unit,
            setting,
            side,
            measure.sign(side),
            distribution.count,
            distribution.missing,
            steps,
            in_force,
            measure.is_folded,
        )


def _threshold(gap: Gap, *, inclusive: bool, is_allowed: Callable[[float], bool]) -> float | int | None:
    """Return the roundest threshold in a gap that the setting allows; None if there is none.

    A bound that drops values equal to it is in ``[low, high)`` for an inclusive maximum, else in ``(low, high]``.
    """
    low, high, _ = gap
    if math.isinf(low):
        low = high - abs(high) - 1
    if math.isinf(high):
        high = low + abs(low) + 1

    def fits(value: float) -> bool:
        return (gap.low <= value < gap.high if inclusive else gap.low < value <= gap.high) and is_allowed(value)

    for exponent in range(9, -18, -1):
        unit = Decimal(1).scaleb(exponent)
        start, way = (low, ROUND_CEILING) if inclusive else (high, ROUND_FLOOR)
        value = float((Decimal(start) / unit).to_integral_value(way) * unit)
        if fits(value):
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
    exact = low if inclusive else high
    return exact if fits(exact) else None


def _validator(setting: str, *, is_whole: bool) -> Callable[[float], bool]:
    """Return a function that tells whether ``selection.<setting>`` may have a value, by itself.

    With ``is_whole``, no bound but a whole number is offered, since all values are such.
    """
    field = SelectionSettings.model_fields.get(setting)
    if field is None:  # the bound of a score of texts, or of a filter of a plugin, may be any number
        return lambda value: math.isfinite(value) and (not is_whole or value.is_integer())
    whole = field.annotation == (int | None)
    allowed = TypeAdapter(Annotated[float, *field.metadata])

    def is_allowed(value: float) -> bool:
        try:
            allowed.validate_python(value)
        except ValidationError:
            return False
        return math.isfinite(value) and (not whole or value.is_integer())

    return is_allowed
