"""docs/pictures: small, of their names in docs/screenshots.py, and each on a page."""

import re
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = sorted((DOCS / "pictures").iterdir())


def test_each_is_small_and_all_together_are() -> None:
    sizes = {path.name: path.stat().st_size for path in PICTURES}
    assert {name: size for name, size in sizes.items() if size > 120_000} == {}
    assert sum(sizes.values()) < 500_000
    for path in PICTURES:
        with Image.open(path) as picture:
            assert picture.format == "WEBP"
            assert 800 <= picture.width <= 1200


def test_each_is_taken_by_the_script_and_shown_on_a_page() -> None:
    script = (DOCS / "screenshots.py").read_text(encoding="utf-8")
    named = re.findall(r'^ +(?:OTHER: \{)?"([a-z-]+)": \w+[,}]', script, flags=re.MULTILINE)
    assert sorted(f"{name}.webp" for name in named) == [path.name for path in PICTURES]
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+\.webp)\)", page.read_text("utf-8"))}
    assert shown == {path.name for path in PICTURES}
