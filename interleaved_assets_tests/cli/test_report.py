import re
import webbrowser
from pathlib import Path

import pytest
from dagster import DagsterInstance, materialize

from interleaved_assets.cli import main
from interleaved_assets.defs.dataset_report import build_dataset_report
from interleaved_assets.settings import load_settings


def without_date(page: Path) -> str:
    text, found = re.subn(r"Made \d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page.read_text(encoding="utf-8"))
    assert found == 1
    return text


def test_the_report_is_the_one_that_dagster_writes(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "out/dataset_report.html"
    assert main([*curated, "report"]) == 0
    assert capsys.readouterr().out == (
        f"2 shards: 2 complete; kept 6 of 6 samples, 8 of 10 images, 24 of 26 rows\n{page}\n"
    )
    without_dagster = without_date(page)
    page.unlink()
    with DagsterInstance.ephemeral() as instance:
        assert materialize(
            [build_dataset_report(load_settings(tmp_path / "interleaved.toml"))], instance=instance
        ).success
    assert without_date(page) == without_dagster


def test_a_page_in_a_bucket_is_not_given_to_the_browser(
    curated: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda page: pytest.fail(f"{page} was opened"))
    for command, page in (
        (["view", "a", "--out", "memory://curated/a.html"], "memory://curated/a.html"),
        (["report"], "memory://curated/dataset_report.html"),
    ):
        if command == ["report"]:
            monkeypatch.setenv("INTERLEAVED_STORAGE__OUTPUT_ROOT", "memory://curated")
        assert main([*curated, *command, "--open"]) == 2
        assert capsys.readouterr().err == (
            f"interleaved: no browser opens {page}: copy it to this machine, or look at it with interleaved serve\n"
        )


def test_without_a_browser_the_command_says_so(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert main([*curated, "report", "--open"]) == 2
    page = tmp_path / "out/dataset_report.html"
    assert capsys.readouterr().err == f"interleaved: there is no browser here to open {page} with\n"


def test_a_failed_shard_is_in_the_report_with_its_error(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw/empty.tar").touch()
    assert main([*curated, "run"]) == 2
    capsys.readouterr()
    assert main([*curated, "report"]) == 0
    assert capsys.readouterr().out.startswith("3 shards: 2 complete, 1 failed; kept 6 of 6 samples, ")
    assert f"normalized failed: {tmp_path}/raw/empty.tar is empty" in (tmp_path / "out/dataset_report.html").read_text()


def test_without_shards_there_is_no_report(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f'[storage]\nraw_root = "{tmp_path}/none"\noutput_root = "{tmp_path}/other"\n'
    (tmp_path / "interleaved.toml").write_text(settings)
    assert main([*curated, "report"]) == 2
    assert f"raw root {tmp_path}/none does not exist" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    assert main([*curated, "report"]) == 1
    assert capsys.readouterr().err == (
        f"interleaved: no shards: no file below {tmp_path}/none has a name that ends in "
        ".tar, .tar.gz, .tgz, .parquet, .jsonl, .jsonl.gz, .jsonl.zst, .jsonl.zip, .warc, .warc.gz or .pdf; "
        "images need storage.bundles\n"
    )
    assert not (tmp_path / "other").exists()


def test_a_raw_root_that_cannot_be_listed_is_told(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw").rename(tmp_path / "other")
    (tmp_path / "raw").touch()
    assert main([*curated, "report"]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("2 shards: ")
    assert "raw shards cannot be recognized: raw root" in printed.err
    assert main([*curated, "release", "v1", "--incomplete"]) == 2
    assert "no release without a look at the raw shards: raw root" in capsys.readouterr().err
