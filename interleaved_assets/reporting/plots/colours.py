"""Colours of every plot, one for each role."""

from typing import Final

SURFACE: Final = "#ffffff"
INK: Final = "#1d2433"
MUTED: Final = "#667085"
GRID: Final = "#e7e9ee"
KEPT: Final = "#3a6fd8"
DROPPED: Final = "#dd6b3d"
SHADE: Final = "#fdf1eb"
