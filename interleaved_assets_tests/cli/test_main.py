import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from interleaved_assets.cli import main
from interleaved_assets.cli.commands.group import interleaved
from interleaved_assets.cli.terminal.console import print_error
from interleaved_assets_tests.documents import document, project, write_shard
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.system_calls import failing

DEEP, DIGITS = "[" * 5000, "9" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "\udcff"],
        ["trace", "--tar", "\udcff.tar"],
        ["trace", "--tar", "a\0b.tar"],
        ["trace", "--tar", DEEP],
        ["trace", "--tar", "s3://"],
        ["what-if", "min_sharpness=\udcff"],
        ["what-if", f"min_sharpness={DEEP}"],
        ["what-if", f"min_sharpness={DEEP[:900]}"],
        ["what-if", f"min_sharpness={DIGITS}"],
        ["what-if", DIGITS],
        ["what-if", "min_sharpness=80\nmax_qr_area_ratio=1"],
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:40],
)
def test_an_odd_argument_is_one_line_of_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    project(tmp_path)
    assert main(["--settings", str(tmp_path / "interleaved.toml"), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("interleaved: ")
    assert printed.err.count("\n") == 1
    assert len(printed.err) <= 2100


def test_the_time_for_a_message_depends_only_on_its_length(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.process_time()
    print_error("x" * 1_000_000)  # took hours with a scheme of any length
    assert time.process_time() - started < 10
    assert len(capsys.readouterr().err) == 2002


STEERING = "\x1b[31m\x9b2J\u202e\u2028"
SPELLED = r"\x1b[31m\x9b2J\u202e\u2028"


def test_data_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path)
    sample_id = f"doc{STEERING}"
    write_shard(tmp_path / "raw/a.tar", {sample_id: document("a")})
    take_all(settings, "a")
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*base, "trace", sample_id]) == 0
    assert main([*base, "trace", f"{sample_id}2"]) == 1
    assert main([*base, "trace", "x", "--shard", STEERING]) == 1
    assert main([*base, "what-if", f"{STEERING}=1"]) == 2
    assert main([*base, "settings", STEERING]) == 2
    printed = capsys.readouterr()
    assert f"doc{SPELLED} in shard a" in printed.out
    assert SPELLED in printed.err
    for character in STEERING:
        assert character in "[31m2J" or character not in printed.out + printed.err


def test_settings_lists_value_and_meaning(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "settings"]) == 0
    printed = capsys.readouterr().out
    assert "selection.min_sharpness" in printed
    assert "Default 100" in printed


def test_settings_are_printed_as_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, "[selection.own.width]\nmax = 50\n[selection.on_fail]\nqr = 'sample'\n")
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "settings"]) == 0
    lines = [line.split("│")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    values = {name.strip(): value.strip() for name, value in lines}
    assert values["run.pictures"] == "true"
    assert values["watch.enabled"] == "false"
    assert values["selection.max_ratio"] == "inf"
    assert values["selection.min_short_side"] == ""
    assert values["scoring.scorers"] == '["sharpness", "qr", "thumbnail"]'
    assert values["selection.own"] == "{width = {max = 50.0}}"
    assert values["selection.on_fail"] == '{qr = "sample"}'
    assert values["run.max_batch_bytes"] == "134217728"


def test_a_missing_settings_file_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", str(tmp_path / "none.toml"), "settings"]) == 2
    assert capsys.readouterr().err == f"interleaved: no settings file {tmp_path / 'none.toml'}\n"


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"interleaved, version {version('interleaved-assets')}\n"


def test_ctrl_c_while_the_command_line_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "interleaved_assets.cli.entry_point", Interrupted("entry_point"))
    assert main(["--help"]) == 130
    assert capsys.readouterr() == ("", "interleaved: interrupted\n")


def test_ctrl_c_is_one_line_and_exit_code_130(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with failing("open", "interleaved.toml", KeyboardInterrupt()):
        assert main([*curated, "what-if", "min_sharpness=0"]) == 130
    assert capsys.readouterr().err.strip() == "interleaved: interrupted"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name in interleaved.commands:
        assert f"  {name} " in printed


def test_a_recipe_in_force_differs_in_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "interleaved.toml"
    file.write_text('recipe = "obelics"\n[storage]\nraw_root = "raw"\n')
    assert main(["--settings", str(file), "recipe", "diff", "obelics"]) == 0
    assert capsys.readouterr().out == "every value of the recipe obelics is in force\n"


def test_forget_takes_keys_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["a", "--vanished"]):
        assert main(["forget", *arguments]) == 2
        assert "forget takes either keys of shards or --vanished; see interleaved forget" in capsys.readouterr().err
