"""docs/limits.md names every limit that is in the code."""

import ast
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
NAME_OF_A_LIMIT = re.compile(r"(?:.*_)?(?:MAX|LONGEST|LARGEST|MOST)_.*")
# what bounds drawings, pages and requests to Dagster, and no input
NOT_OF_INPUTS = ("reporting", "defs")


def constants() -> dict[str, str]:
    """Module constants that are named as limits, with the module of each."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in NOT_OF_INPUTS:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            found |= {name: str(path.relative_to(PACKAGE)) for name in names if NAME_OF_A_LIMIT.fullmatch(name)}
    return found


def test_every_constant_that_limits_an_input_is_named() -> None:
    found = constants()
    assert len(found) > 10
    assert {name: module for name, module in found.items() if name not in NAMES} == {}


def test_every_option_and_setting_that_limits_an_input_is_named() -> None:
    sections = {
        f"{section}.{name}"
        for section in ("run", "limits")
        for name in Settings.model_fields[section].annotation.model_fields
        if section == "limits" or name.endswith("_bytes")
    }
    scoring = {f"scoring.{name}" for name in ScoringSettings.model_fields if name.startswith("max_")}
    assert sections >= {"run.max_batch_bytes", *(f"limits.{name}" for name in TarLimits._fields)}
    assert (sections | scoring | set(TarLimits._fields)) - NAMES == set()


def test_limits_and_codes_that_it_names_exist() -> None:
    named = {name for name in NAMES if NAME_OF_A_LIMIT.fullmatch(name)}
    assert named - set(constants()) == set()
    codes = set(re.findall(r"row errors? `(\w+)`", TEXT))
    assert codes
    assert codes - set(ROW_ERROR_CODES) == set()
