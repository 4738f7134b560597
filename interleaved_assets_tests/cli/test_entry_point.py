"""What surrounds every command: output that cannot be written, and texts that the locale lacks."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import termios
import time
from pathlib import Path

import pytest

from interleaved_assets.cli.entry_point import main
from interleaved_assets.settings.load import FILE_VARIABLE
from interleaved_assets_tests.documents import document, project, write_shard
from interleaved_assets_tests.system_calls import failing

LONG = "x" * 300
"""A name that no local file can have."""
_PATH = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])}


def run(folder: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    environment = {**os.environ, **_PATH, **options.pop("env", {})}  # type: ignore[dict-item]
    command = [sys.executable, "-P", "-m", "interleaved_assets.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, stderr=subprocess.PIPE, timeout=300, **options)  # type: ignore[call-overload, no-any-return]


def test_a_warning_names_a_file_without_the_control_characters_of_its_name(tmp_path: Path) -> None:
    fields, _ = document("one")
    tar = write_shard(tmp_path / "a\x1b[31m\u202e.tar", {"doc": (fields, [])})
    with tarfile.open(tar, "a") as more:
        more.addfile(tarfile.TarInfo("doc.unnamed.png"))
    done = run(tmp_path, "convert", str(tar), "-o", "out", "--to", "parquet", stdout=subprocess.DEVNULL)
    assert done.returncode == 0
    assert rb"a\x1b[31m\u202e.tar: unreferenced_members (1)" in done.stderr
    assert b"\x1b" not in done.stderr
    assert "\u202e".encode() not in done.stderr


@pytest.mark.system
def test_so_do_the_warnings_of_workers(tmp_path: Path) -> None:
    project(tmp_path, "[run]\nparallel_shards = 2\n")
    for name in "ab":
        tar = write_shard(tmp_path / f"raw/{name}\x1b[31m\u202e.tar", {"doc": document("one")})
        with tarfile.open(tar, "a") as more:
            more.addfile(tarfile.TarInfo("doc.unnamed.txt"))
    done = run(tmp_path, "run", stdout=subprocess.DEVNULL)
    for name in (b"a", b"b"):
        assert name + rb"\x1b[31m\u202e.tar: unreferenced_members (1)" in done.stderr
    assert b"\x1b" not in done.stderr
    assert "\u202e".encode() not in done.stderr


@pytest.mark.parametrize("options", [[], pytest.param(["--json"], marks=pytest.mark.system)])
def test_a_reader_that_is_gone_ends_the_command_without_a_word(tmp_path: Path, options: list[str]) -> None:
    project(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    done = run(tmp_path, "settings", *options, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    project(tmp_path)
    with Path("/dev/full").open("wb") as full:
        done = run(tmp_path, "settings", stdout=full)
    message = b"interleaved: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the size of a pipe cannot be set")
def test_an_unbuffered_command_that_is_stopped_and_continued_writes_its_line_whole(tmp_path: Path) -> None:
    """A write to a full pipe that is interrupted so ends early; a container that is paused does the same."""
    project(tmp_path)
    whole = run(tmp_path, "settings", "--json", stdout=subprocess.PIPE).stdout
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    assert size < len(whole)
    command = [sys.executable, "-m", "interleaved_assets.cli", "settings", "--json"]
    with (
        subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | _PATH | {"PYTHONUNBUFFERED": "1"}, stdout=writer
        ) as one,
        os.fdopen(reader, "rb") as output,
    ):
        os.close(writer)
        while fcntl.ioctl(reader, termios.FIONREAD, bytes(4)) != size.to_bytes(4, sys.byteorder):
            assert one.poll() is None
            time.sleep(0.01)
        one.send_signal(signal.SIGSTOP)
        os.waitpid(one.pid, os.WUNTRACED)
        one.send_signal(signal.SIGCONT)
        assert output.read() == whole


def test_characters_that_the_locale_lacks_are_escaped(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", {"d": document("caf\u00e9 \u2192")})
    done = run(tmp_path, "inspect", "a.tar", stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"caf\xe9 \u2192" in done.stdout


def test_a_defect_is_not_taken_for_an_error_of_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    defect = failing("open", "interleaved.toml", LookupError("no such setting"))
    with defect, pytest.raises(LookupError, match="no such setting"):
        main(["settings"])


def test_a_folder_that_was_deleted_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in (["status"], ["inspect", "a.tar"], ["init"]):
        assert main(command) == 2
        assert capsys.readouterr().err == "interleaved: the present folder was deleted: change to another one\n"


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        (FILE_VARIABLE, ["status"]),
        ("DAGSTER_HOME", ["--settings", "interleaved.toml", "forget", "--vanished"]),
        (None, ["inspect", f"{LONG}*.tar"]),
        (None, ["init", "--file", f"{LONG}/interleaved.toml"]),
    ],
)
def test_a_name_that_is_too_long_for_the_storage_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str | None,
    command: list[str],
) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    if variable is not None:
        monkeypatch.setenv(variable, LONG)
    assert main(command) == 2
    assert "File name too long" in capsys.readouterr().err


def test_a_key_that_is_longer_than_a_name_is_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["view", LONG]) == 2
    assert f"{LONG[:20]}" in capsys.readouterr().err


def test_a_file_whose_name_is_not_text_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.tar")).write_text("no tar")
    assert main(["validate", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"interleaved: {tmp_path}/bad\\udcff.tar: the file's name is not UTF-8")
    assert error.count("bad") == 1


NO_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Root without the right to read what its modes forbid."""


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything")
def test_a_folder_without_permission_is_one_line_and_not_an_empty_folder(tmp_path: Path) -> None:
    project(tmp_path)
    for name in ("raw/locked", "here"):
        (tmp_path / name).mkdir()
    write_shard(tmp_path / "raw/b.tar", {"d": document("a")})
    settings, raw = ["--settings", f"{tmp_path}/interleaved.toml"], f"{tmp_path}/raw"
    cases = [
        ([*settings, "status"], "/raw/locked: Permission denied"),
        ([*settings, "forget", "--vanished"], "cannot look for a Dagster instance in "),
        (["status"], "interleaved.toml cannot be read: Permission denied"),
        ([*settings, "inspect", raw], "/raw/locked: Permission denied"),
        ([*settings, "validate", f"{raw}/locked/a.tar"], "/raw/locked/a.tar: Permission denied"),
        ([*settings, "view", f"{raw}/locked/a", "--out", f"{tmp_path}/a.html"], "/raw/locked/a"),
    ]
    script = (
        "import os, sys\nfrom interleaved_assets.cli import main\nos.chmod('.', 0)\n"
        f"for arguments in {[arguments for arguments, _ in cases]!r}:\n"
        "    code = main(arguments)\n"
        "    print(code, '===', file=sys.stderr, flush=True)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "raw/locked").chmod(0)
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    try:
        done = subprocess.run(
            [*(NO_OVERRIDE if os.geteuid() == 0 else ()), sys.executable, "-P", "-c", script],
            cwd=tmp_path / "here",
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        for name in ("raw/locked", "here"):
            (tmp_path / name).chmod(0o700)
    assert done.returncode == 0, done.stderr
    for (arguments, message), said in zip(cases, done.stderr.removesuffix("===\n").split("===\n"), strict=True):
        error, _, code = said.rstrip().rpartition("\n")
        assert (code, error.count("\n")) == ("2", 0), arguments
        assert message in error


def test_without_arguments_the_help_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert main([]) == 2
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trance", "x"], "No such command 'trance'. Did you mean trace? See interleaved --help"),
        (["unheard"], "No such command 'unheard'; see interleaved --help"),
        (["settings", "--jsom"], "No such option '--jsom'. Did you mean '--json'? See interleaved settings --help"),
        (
            ["recipe"],
            "Missing argument '{list|show|diff}'. Choose from: list, show, diff; see interleaved recipe --help",
        ),
    ],
)
def test_wrong_arguments_are_one_line_that_helps(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", f"interleaved: {message}\n")
