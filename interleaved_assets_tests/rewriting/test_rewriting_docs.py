"""The functions that docs/rewriting.md shows, from the settings to the ledger."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interleaved_assets.rewriting.functions import BUILT_IN
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.rewriting.rows import IMAGE, rewritten, rows_of

PAGE = (Path(__file__).parents[2] / "docs/rewriting.md").read_text(encoding="utf-8")


@pytest.fixture
def no_other_my_team() -> Iterator[None]:
    """Other tests import a package of that name from elsewhere."""
    yield
    for name in ("my_team", "my_team.texts"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("no_other_my_team")
def test_own_functions_work_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    builtin, own = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "my_team").mkdir()
    (tmp_path / "my_team/__init__.py").write_text("")
    (tmp_path / "my_team/texts.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "interleaved.toml"
    file.write_text(builtin)
    assert sorted(load_settings(file).rewriting.functions) == sorted(BUILT_IN)
    file.write_text(own)
    functions = load_settings(file).rewriting.functions
    result = rewritten(rows_of(["@you read this text", IMAGE, "short", None]), *functions)
    assert result.rows["text_content"].to_pylist() == [None, "read this text", None, None]
    assert result.changes["reason"].to_pylist() == ["Remove @names", "Drop texts of less than 10 characters"]


def test_every_built_in_function_has_a_line() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE) == [*BUILT_IN]
