"""The functions that settings name: built-in ones, own ones, and names that lead nowhere."""

from pathlib import Path

import pytest

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.rewriting.functions import BUILT_IN, load_function
from interleaved_assets_tests.documents import project


def test_every_built_in_function_is_there() -> None:
    assert [function.__name__ for function in map(load_function, BUILT_IN)] == [*BUILT_IN]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("redact", "no function named redact; there are redact_personal_data, .* as module:function"),
        (".texts:f", "no function named .texts:f"),
        ("os:", "no function named os:"),
        (
            "no_such_module:f",
            "no_such_module:f cannot be imported: No module named 'no_such_module'. Install its package",
        ),
        ("json:no_such", "json:no_such: the module json has no function no_such"),
        ("json:__name__", "json:__name__: the module json has no function __name__"),
        ("broken_texts:f", "broken_texts:f: its module fails while it is imported: RuntimeError: no"),
    ],
)
def test_other_names_are_refused(name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_texts.py").write_text('raise RuntimeError("no")\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=rf"rewriting\.functions: {message}"):
        project(tmp_path, f'[rewriting]\nfunctions = ["{name}"]\n')


def test_a_function_is_named_once(tmp_path: Path) -> None:
    twice = '[rewriting]\nfunctions = ["drop_boilerplate", "drop_boilerplate"]\n'
    with pytest.raises(SettingsError, match=r"rewriting\.functions: a function is named twice"):
        project(tmp_path, twice)
