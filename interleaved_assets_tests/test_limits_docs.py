"""docs/limits.md has every limit that is in the code, with its value."""

import ast
import importlib
import re
from pathlib import Path

from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.model import ROW_ERROR_CODES
from interleaved_assets.scoring import ScoringSettings
from interleaved_assets.settings import Settings

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "interleaved_assets"
TEXT = (REPOSITORY / "docs/limits.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([^`\n]+)`", TEXT))
ROWS = [[cell.strip() for cell in line.split(" | ")] for line in TEXT.splitlines() if line.startswith("| ")]
VALUES = {row[0].removeprefix("| "): row[1] for row in ROWS}
NAME_OF_A_LIMIT = re.compile(r"(?:.*_)?(?:MAX|LONGEST|LARGEST|MOST)_.*")
# what bounds drawings, pages and requests to Dagster, and no input
NOT_OF_INPUTS = ("reporting", "defs")
ROW_OF = {
    "DEFAULT_MAX_PIXELS": "`max_pixels`: width × height of an image",
    "LARGEST_BYTES": "settings file",
    "LARGEST_LIST_BYTES": "list of words of `[documents]`",
    "LARGEST_SIDE": "bound on a side of an image",
    "LONGEST_CONTENT": "text of a row in the tables of `drops` and `what-if`",
    "LONGEST_LINE": "line of an error message",
    "LONGEST_SHOWN": "argument shown in a message",
    "LONGEST_VALUE": "value of `what-if` or `--filter`",
    "MAX_DEPTH": "levels of a Parquet column",
    "MAX_FIELDS": "names in the JSON objects of all columns of a shard",
    "MAX_HEADER_BYTES": "header of a tar member (pax or GNU)",
    "MAX_KEY_BYTES": "key of a shard",
    "MAX_NAME_BYTES": "name of a member that is written",
    "MAX_NULL_BYTES": "row of nulls in columns of stated types",
    "MAX_ROW_BYTES": "decoded row of a Parquet file",
    "MAX_TARS": "final tars of a shard that is split",
    "MOST_DOCUMENT_BYTES": "text of a document, or one text, that scorers other than `words` and `identity` measure",
    "MOST_LANGUAGE_CHARACTERS": "characters of a text that the scorer `language` sees",
    "_LARGEST_MAX_PIXELS": "largest value of `max_pixels`",
    "_LONGEST_HEAD": "head of an answer in a web archive",
    "_LONGEST_LINE": "characters of a line that CLIP's tokenizer cleans at once",
    "_LONGEST_SHOWN_LINE": "line of such a message",
    "_LONGEST_TEXT": "text shown by `inspect`",
    "_LONGEST_WORD": "characters of a word for CLIP's tokenizer",
    "_MAX_DEPTH": "levels of a column made from JSON",
    "_MAX_END": "end of a member in a tar",
    "_MAX_JSON_DEPTH": "levels of a document",
    "_MOST_ANSWER_BYTES": "answer of a model that reads PDF pages",
    "_MOST_BYTES": "size in the settings",
    "_MOST_REPEATED": "captions and addresses that the rows of a page repeat",
    "_MOST_ROW_BYTES": "document of a release with `--documents`",
    "_MOST_DAMAGED": "damaged places in a web archive",
    "_MOST_CHARACTERS": "characters of a PDF page",
    "_MOST_FAILED": "pages in a row for which that model fails",
    "_MOST_FORMS": "levels of forms of a PDF page with objects",
    "MOST_IMAGE_PIXELS": "pixels of an image or page of a PDF file",
    "_MOST_OBJECTS": "objects of a PDF page",
    "_MOST_CELLS": "places of a table with lines on a PDF page",
    "_MOST_LEVELS": "levels of columns on a PDF page",
    "_MOST_RULES": "lines in a direction on a PDF page",
    "_MOST_SEGMENTS": "segments of a path on a PDF page",
    "_MOST_PAGE_BYTES": "text of a page of a PDF file",
    "_MOST_ENDED": "parsers that a PDF file may end",
    "_MOST_ENTRIES": "tags in the Exif or GPS directory of a TIFF",
    "_MOST_GAPS": "nulls in a written document for positions without a row",
    "_MOST_LINES": "lines of a message about settings",
    "_MOST_TAGS": "tags of a page",
}
"""The row of the page that describes each constant."""


def constants() -> dict[str, int]:
    """Return the values of module constants that are named as limits."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        relative = path.relative_to(REPOSITORY)
        if relative.parts[1] in NOT_OF_INPUTS:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                if NAME_OF_A_LIMIT.fullmatch(name):
                    value = getattr(importlib.import_module(".".join(relative.with_suffix("").parts)), name)
                    assert found.setdefault(name, value) == value, f"{name} of {relative} is another limit elsewhere"
    return found


def number(cell: str) -> int:
    """Return the number at the beginning of a cell: ``1 MiB``, ``1,000``, ``2^31 − 1``."""
    match = re.match(r"([\d,]+)(?:\^(\d+))?(?: (KiB|MiB|GiB))?( − 1)?", cell)
    assert match, cell
    digits, power, unit, less = match.groups()
    factor = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
    return int(digits.replace(",", "")) ** int(power or 1) * factor - (1 if less else 0)


def test_every_constant_that_limits_an_input_has_a_row_with_its_value() -> None:
    found = constants()
    assert {name: number(VALUES[row]) for name, row in ROW_OF.items()} == found


def test_every_option_and_setting_that_limits_an_input_is_named() -> None:
    sections = {
        f"{section}.{name}"
        for section in ("run", "limits")
        for name in type(getattr(Settings(), section)).model_fields
        if section == "limits" or name.endswith("_bytes")
    }
    scoring = {f"scoring.{name}" for name in ScoringSettings.model_fields if name.startswith("max_")}
    assert sections >= {"run.max_batch_bytes", *(f"limits.{name}" for name in TarLimits._fields)}
    assert (sections | scoring | set(TarLimits._fields)) - NAMES == set()


def test_the_settings_have_the_defaults_of_the_page() -> None:
    shown = {row[2].strip("`"): number(row[1]) for row in ROWS if re.fullmatch(r"`(?:limits|run)\.\w+`", row[2])}
    assert len(shown) == len(TarLimits._fields) + 1
    settings = Settings()
    assert shown == {name: getattr(getattr(settings, name.split(".")[0]), name.split(".")[1]) for name in shown}


def test_it_names_no_constants_and_the_codes_that_it_names_exist() -> None:
    assert {name for name in NAMES if NAME_OF_A_LIMIT.fullmatch(name)} == set()
    codes = set(re.findall(r"row errors? `(\w+)`", TEXT))
    assert codes
    assert codes - set(ROW_ERROR_CODES) == set()
