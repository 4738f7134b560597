"""Settings that would wait for ever, take all memory, or end in a traceback: each is one short message."""

import os
import sys
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.settings import load_settings, parse_settings

DIGITS = "9" * 400


def test_a_settings_file_is_a_regular_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for file in (str(tmp_path / "pipe.toml"), "/dev/zero", "/dev/null"):
        assert main(["--settings", file, "status"]) == 2
        assert capsys.readouterr().err.startswith(
            f"interleaved: settings: cannot read {file}: it is not a regular file but a FIFO, a socket or a device"
        )


def test_a_large_file_is_no_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "large.toml"
    with file.open("wb") as opened:
        opened.truncate(2**30)
    with pytest.raises(SettingsError, match=r"large\.toml has 1,073,741,824 bytes, and a settings file at most 1,048,"):
        load_settings(file)


@pytest.mark.parametrize(
    "text",
    [
        f"x = {'[' * 2000}{']' * 2000}",
        f"x = {'{a=' * 2000}1{'}' * 2000}",
        f"[storage.options.{'.'.join(['a'] * 3000)}]\nb = 1",
    ],
    ids=["lists", "tables", "names"],
)
def test_values_nested_too_deeply(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"x\.toml, or a variable INTERLEAVED_…: a value is nested too deeply"):
        parse_settings(text, tmp_path / "x.toml")


def test_a_variable_nested_too_deeply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLEAVED_SELECTION__ORDER", f"{'[' * 100_000}{']' * 100_000}")
    with pytest.raises(SettingsError, match="a value is nested too deeply"):
        parse_settings("", tmp_path / "x.toml")


@pytest.mark.parametrize(
    "setting",
    [
        "[selection]\nmin_short_side",
        "[selection]\nmax_long_side",
        "[run]\nmax_shard_seconds",
        "[run]\nmax_batch_bytes",
        "[limits]\nmax_columns",
        "[limits]\nmax_member_bytes",
        "[final_tars]\nmax_samples_per_tar",
        "[final_tars]\nmax_tar_bytes",
        "[checks]\nmin_other_shards",
        "[clip]\nbatch_size",
        "[clip]\nthreads",
        "[clip]\nmax_pixels",
        "[clip.prescreen]\nmin_width",
    ],
)
@pytest.mark.parametrize("number", [DIGITS, "9" * 5000, "9" * 30], ids=["400", "5000", "30"])
def test_numbers_with_hundreds_of_digits(tmp_path: Path, setting: str, number: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(f"{setting} = {number}", tmp_path / "x.toml")
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "setting", ["[run]\nmax_shard_seconds", "[checks]\nmax_raw_age_hours", "[clip.prescreen]\nmin_sharpness"]
)
@pytest.mark.parametrize("number", ["inf", "nan"])
def test_a_bound_that_bounds_nothing(tmp_path: Path, setting: str, number: str) -> None:
    with pytest.raises(SettingsError, match="Input should be"):
        parse_settings(f"{setting} = {number}", tmp_path / "x.toml")


@pytest.mark.parametrize("name", [".", "..x", ".scorers"])
def test_modules_are_not_relative(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=r"is relative: give the module its full name, such as my_team\.scorers"):
        parse_settings(f'[plugins]\nmodules = ["{name}"]', tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("text", "error"), [("registr('x')", "NameError: name 'reg"), ("raise SystemExit(0)", "SystemExit: 0")]
)
def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str) -> None:
    (tmp_path / "own_scorers_with_a_typo.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=f"own_scorers_with_a_typo fails while it is imported: {error}"):
        parse_settings('[plugins]\nmodules = ["own_scorers_with_a_typo"]', tmp_path / "x.toml")


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"key_{number} = 1" for number in range(9000)),
        f'[selection]\norder = ["{"x" * 100_000}"]',
        f"[storage.options]\n{'x' * 100_000} = 1",
        f"[selection]\n{'x' * 100_000} = 1",
        f'[plugins]\nmodules = ["{"x" * 100_000}"]',
    ],
    ids=["keys", "order", "option", "key", "module"],
)
def test_messages_are_short(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, tmp_path / "x.toml")
    assert len(str(caught.value)) < 5000


def test_the_end_of_a_long_message_is_kept(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"order: no filter named x+ … .*text_ratio|sharpness_grey"):
        parse_settings(f'[selection]\norder = ["{"x" * 100_000}"]', tmp_path / "x.toml")


@pytest.mark.parametrize("file", ["model_config_path", "pretrained", "heads"])
def test_files_of_the_model_are_regular_files(tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    named = '[clip.heads.own]\npath = "pipe.pt"' if file == "heads" else f'{file} = "pipe.pt"'
    (tmp_path / "raw").mkdir()
    (tmp_path / "interleaved.toml").write_text(f'[storage]\nraw_root = "raw"\n[clip]\nenabled = true\n{named}')
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "status"]) == 0
    assert "pipe.pt: it is not a regular file" in caplog.text


def test_arguments_with_hundreds_of_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "interleaved.toml").write_text("")
    project = ["--settings", str(tmp_path / "interleaved.toml")]
    for arguments in (
        ["what-if", f"max_long_side={DIGITS}"],
        ["convert", "a.tar", "-o", "out", "--to", "tar", "--filter", f"min_short_side={DIGITS}"],
        ["inspect", "a.tar", "-n", DIGITS],
        ["run", "--jobs", DIGITS],
    ):
        assert main([*project, *arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith("interleaved: ")
        assert error.count("\n") == 1


def test_a_locale_in_which_shards_would_have_other_keys_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ISO 8859-1 the name of ``Ü.tar`` is two other characters, while cron has UTF-8 for the same folder."""
    (tmp_path / "interleaved.toml").write_text("")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "status"]) == 2
    assert "file names are read as iso8859-1 in this locale (LC_ALL, LANG)" in capsys.readouterr().err
