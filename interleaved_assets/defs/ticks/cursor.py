"""The cursor of a sensor: the number of a table below the output root."""

from typing import Final

import dagster as dg

_CURSOR_LENGTH: Final = 19
"""Python refuses to read numbers of thousands of digits."""


def cursor_number(context: dg.SensorEvaluationContext) -> int:
    """The number in the sensor's cursor; 0 where it has none, or where the cursor was set to another text in the UI."""
    cursor = context.cursor or ""
    return int(cursor) if cursor.isdecimal() and len(cursor) < _CURSOR_LENGTH else 0
