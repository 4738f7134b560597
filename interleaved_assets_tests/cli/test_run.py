import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import DagsterInstance
from fsspec.implementations.local import LocalFileSystem

from interleaved_assets.cli import main
from interleaved_assets.cli.terminal.console import short
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import read_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.due import KnownRuns, due_shards
from interleaved_assets_tests.defs.runs import STAGES, materialized, run_chain
from interleaved_assets_tests.documents import good_shard, project, refuse_listing, stages_before
from interleaved_assets_tests.projects import take_all


def test_all_due_shards_are_made_and_then_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path)
    command = ["--settings", str(tmp_path / "interleaved.toml"), "run"]
    for number, name in enumerate(("a", "deep/b")):
        good_shard(tmp_path / f"raw/{name}.tar", seed=10 * number)
    assert main(command) == 0
    first, last = capsys.readouterr().out.splitlines()[-2:]
    assert first == "2 shards: 2 current, 0 failed"
    assert last == f"kept 6 of 6 samples, 8 of 10 images, 24 of 26 rows; final tars: {tmp_path / 'out/tars'}"
    made = {name: {"a", "deep/b"} for name in stage_dag(settings)}
    due = due_shards(list(list_raw_shards(settings.storage)), settings, {}, KnownRuns(made, {}, frozenset()))
    assert (due.shards, due.current) == ({}, {"a", "deep/b"})
    # what the orchestrator calls finds nothing to do
    assert [take_through(stage, "a", settings).unchanged for stage in stage_dag(settings).values()] == [True] * len(
        STAGES
    )
    assert main(command) == 0
    assert capsys.readouterr().out == "nothing to make: 2 shards, all current\n"
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"made": 0, "current": 2, "failed": 0}


@pytest.mark.parametrize("stage", ["normalized", "final_tars"])
def test_a_shard_that_is_gone_is_neither_run_nor_kept_where_its_record_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    settings = project(tmp_path, "[final_tars]\nmax_samples_per_tar = 2\n")
    command = ["--settings", str(tmp_path / "interleaved.toml")]
    for number, name in enumerate(("a", "gone", "gone-too")):
        good_shard(tmp_path / f"raw/{name}.tar", seed=10 * number)
        take_all(settings, name)
    for name in ("gone", "gone-too"):
        (tmp_path / f"raw/{name}.tar").unlink()
    os.truncate(tmp_path / f"out/records/{stage}/gone.json", 100)
    assert main([*command, "run"]) == 0
    assert capsys.readouterr().out == "nothing to make: 1 shard, all current\n"
    assert main([*command, "status"]) == 0
    assert "A run would take" not in capsys.readouterr().out
    assert main([*command, "forget", "--vanished", "--yes"]) == 0
    left = {path.name.partition(".")[0].partition("~")[0] for path in (tmp_path / "out").rglob("*.*")}
    assert left == {"a"}


def test_a_run_in_dagster_takes_over_what_is_there(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "run"]) == 0
    folders = (*stages_before("final_tars"), "tars", "dropped", "records", "pages", "pictures")
    before = {path: path.stat().st_mtime_ns for name in folders for path in (tmp_path / "out" / name).rglob("*.*")}
    assert len(before) >= 13
    with DagsterInstance.ephemeral() as instance:
        assert run_chain(instance, settings, ["a"]).success
        assert [materialized(instance, name) for name in STAGES] == [{"a"}] * len(STAGES)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_pages_are_those_that_dagster_writes(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    with DagsterInstance.ephemeral() as instance:
        assert run_chain(instance, settings, ["a"]).success
    files = [tmp_path / "out/pages/a.html", tmp_path / "out/pictures/filtered/a.json"]
    before = [file.read_bytes() for file in files]
    shutil.rmtree(tmp_path / "out")
    command = ["--settings", str(tmp_path / "interleaved.toml"), "run"]
    assert main(command) == 0
    assert [file.read_bytes() for file in files] == before
    project(tmp_path, "[pages]\nenabled = false\n")
    shutil.rmtree(tmp_path / "out")
    assert main(command) == 0
    assert not files[0].exists()


def test_a_page_that_cannot_be_written_is_an_error_of_the_run_but_not_of_the_shard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/pages").write_text("a file where the folder belongs")
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "run"]) == 2
    printed = capsys.readouterr()
    assert "1 shard: 1 current, 0 failed" in printed.out
    assert "interleaved: filtered: shard a: pictures and page could not be written: cannot write" in printed.err


def test_outputs_and_records_are_those_of_the_stages(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    take_all(settings, "a")
    paths = settings.storage.shard("a")
    before = {name: read_record(paths.record(name), {}) for name in stage_dag(settings)}
    for file in (tmp_path / "out").rglob("*.*"):
        file.unlink()
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "run", "a"]) == 0
    for name, record in before.items():
        again = read_record(paths.record(name), {})
        assert record is not None
        assert again is not None
        assert {role: file.content for role, file in again.outputs.items()} == {
            role: file.content for role, file in record.outputs.items()
        }
        assert again.model_dump(exclude={"outputs", "seconds"}) == record.model_dump(exclude={"outputs", "seconds"})


def test_a_failed_shard_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, "[run]\nshards_per_run = 2\n")
    for name in ("a", "c"):
        good_shard(tmp_path / f"raw/{name}.tar")
    (tmp_path / "raw/b.tar").write_text("no tar")
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "run", "--json", "--jobs", "1"]) == 2
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [(line["shard"], line["outcome"]) for line in lines if line["stage"] in ("normalized", "final_tars")] == [
        ("a", "made"),
        ("a", "made"),
        ("b", "failed"),
        ("c", "made"),
        ("c", "made"),
    ]
    assert printed.err.count("\n") == 1
    assert "interleaved: normalized: shard b: " in printed.err
    assert "b.tar is not a tar" in printed.err
    assert {path.name for path in (tmp_path / "out/tars").iterdir()} == {"a.tar", "c.tar"}


def test_unknown_keys_are_named_with_those_like_them_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path)
    good_shard(tmp_path / "raw/web/articles-0.tar")
    command = ["--settings", str(tmp_path / "interleaved.toml"), "run"]
    assert main([*command, "web/articels-0", "web/articles-0", "web/articles-0.tar", "../x"]) == 2
    printed = capsys.readouterr()
    asked = f"no raw shard below {tmp_path}/raw has the key"
    assert (printed.out, printed.err.splitlines()) == (
        "",
        [
            f"interleaved: {asked} 'web/articels-0': did you mean web/articles-0?",
            f"{asked} 'web/articles-0.tar': did you mean web/articles-0?",
            f"{asked} '../x'; interleaved status --json lists all shards",
        ],
    )
    assert not (tmp_path / "out").exists()
    assert main([*command, "web/articles-0"]) == 0
    (tmp_path / "raw/web/articles-0.tar").unlink()
    assert main([*command, "web/articles-0"]) == 2
    assert f"the raw shard of web/articles-0 is gone from {tmp_path}/raw; interleaved forget" in capsys.readouterr().err
    assert not (tmp_path / "out/failures").exists()


def test_a_raw_root_that_cannot_be_read_is_told_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path)
    (tmp_path / "raw").rmdir()
    (tmp_path / "raw").write_text("a file")
    for command in (["run", "a"], ["drops", "--shard", "a"]):
        assert main(["--settings", str(tmp_path / "interleaved.toml"), *command]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"interleaved: cannot look at {tmp_path}/raw/a.tar: Not a directory")
    assert not (tmp_path / "out").exists()


def test_what_is_no_key_is_refused_although_a_file_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    good_shard(tmp_path / "raw/a/b.tar")
    for name in ("x", "a/x", "raw/y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(tmp_path / "raw/a/b.tar", tmp_path / f"{name}.tar")
    before = sorted(tmp_path.rglob("*"))
    texts = ["../x", "../../y", "./a/b", "a/../a/b", "a//b", "a%2Fb", "%2E%2E/x", "%2E/y", str(tmp_path / "raw/a/b")]
    for text in texts:
        assert main(["--settings", str(tmp_path / "interleaved.toml"), "run", "--", text]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith(f"interleaved: no raw shard below {tmp_path}/raw has the key {short(text)}"), text
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_folder_that_cannot_be_listed_is_an_error_beside_shards_that_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    refuse_listing(monkeypatch, tmp_path / "raw/web")
    good_shard(tmp_path / "raw/web/b.tar")
    command = ["--settings", str(tmp_path / "interleaved.toml"), "run", *options]
    error = f"interleaved: shards in a folder are not seen: cannot list {tmp_path}/raw/web: Permission denied."
    for _ in ("made", "current"):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith(error)
    assert (tmp_path / "out/tars/a.tar").exists()


def test_a_time_out_of_the_storage_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    command = ["--settings", str(tmp_path / "interleaved.toml"), "run", "--jobs", "1"]
    asked: list[str] = []
    info = LocalFileSystem.info

    def times_out_twice(fs: LocalFileSystem, path: str, **options: object) -> object:
        if path == f"{tmp_path}/raw/a.tar" and len(asked) < 2:
            asked.append(path)
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
        return info(fs, path, **options)

    monkeypatch.setattr(LocalFileSystem, "info", times_out_twice)
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)  # the pauses between tries
    assert main([*command, "a"]) == 0
    assert (len(asked), capsys.readouterr().err) == (2, "")
    assert (tmp_path / "out/tars/a.tar").exists()
    asked.clear()
    assert main([*command, "a", "typo"]) == 2  # the other key is refused as ever
    assert capsys.readouterr().err.startswith(f"interleaved: no raw shard below {tmp_path}/raw has the key 'typo'")


def test_a_missing_raw_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    command = ["--settings", str(tmp_path / "interleaved.toml"), "run"]
    (tmp_path / "raw").rmdir()
    assert main(command) == 2
    assert "raw root" in capsys.readouterr().err


@pytest.mark.system
def test_a_scorer_that_hangs_does_not_keep_the_command_from_ending(tmp_path: Path) -> None:
    project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    # the limit must not stop the stages before
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "run"]) == 0
    (tmp_path / "hanging.py").write_text(
        "from threading import Event\n"
        "from interleaved_assets.scoring import Scorer, register_scorer\n"
        "register_scorer(Scorer('hanging', {'hanging': 'double'}, lambda _: lambda image: Event().wait(600)))\n"
    )
    with (tmp_path / "interleaved.toml").open("a") as settings:
        settings.write(
            '[plugins]\nmodules = ["hanging"]\n[scoring]\nscorers = ["sharpness", "qr", "hanging"]\n'
            "[run]\nmax_shard_seconds = 1\n"
        )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))}
    command = [sys.executable, "-m", "interleaved_assets.cli", "run", "--jobs", "1"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120)
    assert ran.returncode == 2
    assert b"shard a: image_scores was stopped because it took longer than run.max_shard_seconds = 1" in ran.stderr
