"""What no command replaces: inputs, files without ``--overwrite``, and what is no regular file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.restorable import Restorable


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Restorable:
    folder = tmp_path_factory.mktemp("made") / "project"
    folder.mkdir()
    project(folder)
    good_shard(folder / "raw/a.tar")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run"]) == 0
        assert main(["score", "raw/a.tar", "s.parquet"]) == 0
    return Restorable(folder)


@pytest.fixture
def folder(made_once: Restorable, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: a project whose shard ``a`` went through all stages, with scores of it in ``s.parquet``."""
    folder = made_once.restore()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return folder


KINDS: dict[str, Callable[[Path], None]] = {
    "link": lambda path: path.symlink_to(Path("raw/a.tar").absolute()),
    "broken link": lambda path: path.symlink_to("nothing"),
    "loop": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
}
WRITERS = {
    "view": ["view", "s.tar", "--out", "x", "--overwrite"],
    "view of a shard": ["view", "a", "--out", "x", "--overwrite"],
    "score": ["score", "s.tar", "x", "--overwrite"],
    "select": ["select", "s.tar", "s.parquet", "x", "--overwrite"],
    "ledger": ["select", "s.tar", "s.parquet", "y.tar", "--ledger", "x", "--overwrite"],
    "convert": ["convert", "s.tar", "-o", ".", "--to", "parquet", "--overwrite"],
    "init": ["init", "--file", "x"],
    "release": ["release", "v1", "--to", "copy"],
    "report": ["report"],
    "run": ["run", "a"],
}
TARGETS = {
    "select": "x.tar",
    "convert": "s.parquet",
    "release": "copy/manifest.json",
    "report": "out/dataset_report.html",
    "run": "out/filtered/a.parquet",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", WRITERS)
def test_what_is_no_regular_file_is_not_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, kind: str
) -> None:
    good_shard(folder / "s.tar")
    target = folder / TARGETS.get(command, "x")
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    KINDS[kind](target)
    before, raw = target.lstat(), (folder / "raw/a.tar").read_bytes()
    capsys.readouterr()
    arguments = [target.name if one == "x" else one for one in WRITERS[command]]
    assert main(arguments) == 2
    assert target.name in capsys.readouterr().err
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert (folder / "raw/a.tar").read_bytes() == raw


def test_a_page_replaces_a_file_only_where_it_is_told_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "page.html").write_text("mine")
    for shard in ("a", "raw/a.tar"):
        for target in ("page.html", "interleaved.toml"):
            before = (folder / target).read_text()
            assert main(["view", shard, "--out", target]) == 2
            message = f"cannot write {target}: the file exists. Name another one, or replace it with --overwrite."
            assert message in capsys.readouterr().err
            assert (folder / target).read_text() == before
    assert main(["view", "a", "--out", "page.html", "--overwrite"]) == 0
    assert "doc-0-a" in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "simplecache::raw/a.tar",
        "filecache::raw/a.tar",
        "dir::raw/a.tar",
        "zip://a.tar::raw/a.tar",
        "simplecache::file://{folder}/raw/a.tar",
        "file://{folder}/raw/a.tar",
        "file://{folder}/raw/../raw//a.tar",
        "local://{folder}/raw/a.tar",
        "{folder}/./raw//a.tar",
        "linked/a.tar",
        "hard.tar",
        "http://localhost:9/a.tar",
    ],
)
def test_no_other_name_of_an_input_is_an_output(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    commands = (
        ["score", "raw/a.tar", "NAME", "--overwrite"],
        ["select", "raw/a.tar", "s.parquet", "NAME", "--overwrite"],
        ["select", "raw/a.tar", "s.parquet", "x.tar", "--ledger", "NAME", "--overwrite"],
        ["view", "raw/a.tar", "--out", "NAME", "--overwrite"],
    )
    (folder / "linked").symlink_to("raw")
    (folder / "hard.tar").hardlink_to(folder / "raw/a.tar")
    before = sorted(folder.rglob("*")), (folder / "raw/a.tar").read_bytes()
    capsys.readouterr()
    named = name.format(folder=folder)
    for command in commands:
        assert main([named if one == "NAME" else one for one in command]) == 2, command
        error = capsys.readouterr().err
        assert "is the input: name another file" in error or f"cannot write {named}: " in error, command
        assert error.count("\n") == 1
        assert (sorted(folder.rglob("*")), (folder / "raw/a.tar").read_bytes()) == before, command


def test_the_file_behind_a_chained_input_is_an_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "simplecache::raw/a.tar", "raw/a.tar", "--overwrite"]) == 2
    assert "raw/a.tar is the input" in capsys.readouterr().err
    good_shard(folder / "b.tar")
    link = f"simplecache::{folder}/b.tar"
    assert main(["convert", link, "-o", ".", "--to", "tar", "--overwrite"]) == 2
    assert f"b.tar would replace the input {link}" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["simplecache::file:///out2", "http://localhost:9/out"])
def test_outputs_have_to_be_where_files_can_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    for arguments in (["convert", "raw", "-o", output, "--to", "parquet"], ["release", "v1", "--to", output]):
        assert main(arguments) == 2
        assert f"cannot write {output}" in capsys.readouterr().err
    monkeypatch.setenv("INTERLEAVED_STORAGE__OUTPUT_ROOT", output)
    for command in ("run", "status", "report"):
        assert main([command]) == 2
        assert f"storage.output_root: cannot write {output}" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["/", "//", "/.", "s3://"])
def test_a_release_is_not_copied_to_the_root_of_a_disk(
    folder: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    assert main(["release", "v1", "--to", to]) == 2
    assert capsys.readouterr().err == (
        f"interleaved: a release cannot be copied to {to}: choose an empty folder below it\n"
    )


def test_a_page_is_no_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out in ("/", ".", "raw"):
        assert main(["view", "a", "--out", out, "--overwrite"]) == 2
        assert f"cannot write {out}: Is a directory" in capsys.readouterr().err
