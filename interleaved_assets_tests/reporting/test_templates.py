"""Texts of report and pages can be read by people who see contrasts poorly, in both colour schemes."""

import re
from pathlib import Path

import pytest

import interleaved_assets.reporting

THEME = (Path(interleaved_assets.reporting.__file__).parent / "templates" / "theme.css").read_text()
TEXTS_ON = {
    "page": ("ink", "muted", "kept", "dropped-ink", "alarm"),
    "surface": ("ink", "muted", "kept", "dropped-ink", "alarm"),
    "shade": ("ink", "muted", "dropped-ink", "alarm"),
    "alarm-soft": ("ink", "alarm"),
}


def _luminance(colour: str) -> float:
    """Return the relative luminance of ``#rrggbb``, 0 to 1, as WCAG 2.2 defines it."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_has_the_contrast_that_wcag_asks_for(scheme: int) -> None:
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", re.findall(r":root \{(.*?)\}", THEME, re.DOTALL)[scheme]))
    for ground, texts in TEXTS_ON.items():
        for text in texts:
            lower, higher = sorted(_luminance(colours[name]) for name in (ground, text))
            assert (higher + 0.05) / (lower + 0.05) >= 4.5, (text, ground)
