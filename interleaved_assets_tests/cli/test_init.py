import re
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.settings import Settings, load_settings, parse_settings, settings_template
from interleaved_assets_tests.test_docs import names_of_settings


def test_the_file_loads_and_has_every_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "interleaved.toml"
    roots = ["--raw-root", "s3://bucket/raw", "--output-root", "s3://bucket/out"]
    assert main(["init", *roots, "--file", str(file)]) == 0
    settings = load_settings(file)
    assert (settings.storage.raw_root, settings.storage.output_root) == ("s3://bucket/raw", "s3://bucket/out")
    assert settings.errors.on_materialize_error == "drop_row"
    assert settings.selection.min_sharpness_256 == 150
    found, section = set(), ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif match := re.match(r"(?:# )?([\w.]+) =( |$)", line):
            found.add(f"{section}.{match[1]}")
    # scores of texts and bounds on them (docs/text-scores.md), and functions that change texts are left out
    left_out = {name for name in names_of_settings(Settings) if name.startswith(("documents.", "rewriting."))}
    left_out |= {f"selection.{name}" for name in ("document", "text")}
    left_out |= {f"selection.{side}_{unit}" for side in ("min", "max") for unit in ("images", "words")}
    assert found | left_out == names_of_settings(Settings)
    assert not found & left_out
    before = file.read_text(encoding="utf-8")
    assert main(["init", "--file", str(file)]) == 2
    assert f"{file} exists and is not changed" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == before


def test_lines_that_are_commented_out_have_the_defaults(tmp_path: Path) -> None:
    text = settings_template("raw", "out")
    lines = [re.sub(r"^# (?=[\w.]+ = \S)", "", line) for line in text.splitlines()]
    settings = parse_settings("\n".join(lines), tmp_path / "interleaved.toml")
    plain = parse_settings(text, tmp_path / "interleaved.toml")
    assert settings == plain
    assert plain.selection.max_ratio == Settings().selection.max_ratio


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--raw-root", "s3://key:secret@bucket/raw"], "storage.raw_root has a user or password in its URL"),
        (["--raw-root", "a", "--output-root", "a/b"], "lie inside one another"),
        (["--file", "nowhere/x.toml"], "cannot write nowhere/x.toml: there is no folder nowhere; create it"),
        (["--file", ""], ". exists and is not changed"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", *options]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "secret" not in printed.err
    assert (printed.out, printed.err.count("\n"), list(tmp_path.iterdir())) == ("", 1, [])
