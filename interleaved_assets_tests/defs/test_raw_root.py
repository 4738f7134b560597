import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from interleaved_assets.defs.checks import judge_raw_root
from interleaved_assets.pipeline.run.check import Verdict
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.s3 import S3Server

NOW = 1_700_000_000.0
DAY = "[checks]\nmax_raw_age_hours = 24\n"


def judge(settings: Settings, now: float, registered: Sequence[str] = ()) -> Verdict:
    return judge_raw_root(settings.storage, settings.checks.max_raw_age_hours, now, registered)


def put(path: Path, *, hours_ago: float) -> None:
    path.write_bytes(b"12345")
    os.utime(path, (NOW, NOW - hours_ago * 3600))


def test_the_newest_shard_counts(tmp_path: Path) -> None:
    settings = project(tmp_path, DAY)
    put(tmp_path / "raw/old.tar", hours_ago=1000)
    put(tmp_path / "raw/new.tar.gz", hours_ago=23)
    put(tmp_path / "raw/no-shard.json", hours_ago=0)
    put(tmp_path / "raw/.hidden.tar", hours_ago=0)
    verdict = judge(settings, NOW)
    assert (verdict.passed, verdict.summary) == (
        True,
        "the newest of 2 shards landed 23.0 hours ago, and 24 are allowed",
    )
    assert verdict.figures == {
        "shards": 2,
        "ignored_files": 1,
        "bytes": 10,
        "vanished_shards": 0,
        "newest_shard": str(tmp_path / "raw/new.tar.gz"),
        "newest_landed_at": NOW - 23 * 3600,
        "age_hours": 23.0,
    }


def test_a_newest_shard_that_is_too_old_is_a_warning(tmp_path: Path) -> None:
    settings = project(tmp_path, DAY)
    put(tmp_path / "raw/old.tar", hours_ago=24.5)
    verdict = judge(settings, NOW)
    assert (verdict.passed, verdict.severity, verdict.figures["age_hours"]) == (False, "WARN", 24.5)
    assert judge(project(tmp_path), NOW).passed  # without a limit


def test_a_time_in_the_future_counts_as_now(tmp_path: Path) -> None:
    settings = project(tmp_path, DAY)
    put(tmp_path / "raw/ahead.tar", hours_ago=-5)
    verdict = judge(settings, NOW)
    assert (verdict.passed, verdict.figures["age_hours"]) == (True, 0.0)


def test_vanished_shards_are_counted(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw/sub").mkdir()
    put(tmp_path / "raw/sub/a b.tar", hours_ago=1)
    verdict = judge(settings, NOW, ["sub/a%20b", "gone", "sub/gone"])
    assert (verdict.passed, verdict.figures["vanished_shards"], verdict.figures["shards"]) == (True, 2, 1)


def test_an_empty_raw_root_is_a_warning(tmp_path: Path) -> None:
    verdict = judge(project(tmp_path, DAY), NOW)
    assert (verdict.passed, verdict.severity) == (False, "WARN")
    assert verdict.figures == {"shards": 0, "ignored_files": 0, "bytes": 0, "vanished_shards": 0}
    # a disk that is not mounted looks like this, whatever age is allowed
    assert not judge(project(tmp_path), NOW).passed


def test_a_raw_root_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw").rmdir()
    verdict = judge(settings, NOW)
    assert (verdict.passed, verdict.severity) == (False, "ERROR")
    assert "raw does not exist: set storage.raw_root" in verdict.summary


def with_times(monkeypatch: pytest.MonkeyPatch, **times: object) -> None:
    """Let the local filesystem return ``times`` by name of the shard, as another storage might."""
    real = LocalFileSystem.ls

    def ls(fs: LocalFileSystem, path: str, **options: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": info["name"],
                "type": info["type"],
                "size": info["size"],
                "updated": times[Path(info["name"]).stem],
            }
            for info in real(fs, path, **options)
        ]

    monkeypatch.setattr(LocalFileSystem, "ls", ls)


def test_a_time_that_cannot_be_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = project(tmp_path, DAY)
    for name in ("a", "b"):
        put(tmp_path / f"raw/{name}.tar", hours_ago=1)
    with_times(monkeypatch, a="Tue, 14 Nov 2023 22:13:20 GMT", b="")
    verdict = judge(settings, NOW)
    assert (verdict.passed, verdict.severity) == (False, "WARN")
    assert verdict.summary == "the storage gives no times of its files"
    assert judge(project(tmp_path), NOW).passed  # without a limit nothing is asked of them


def test_shards_without_a_time_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = project(tmp_path, DAY)
    for name in ("a", "b", "c"):
        put(tmp_path / f"raw/{name}.tar", hours_ago=1)
    with_times(monkeypatch, a="2023-11-14T20:13:20.000Z", b="yesterday", c=None)
    verdict = judge(settings, NOW)
    assert verdict.passed
    assert verdict.summary == (
        "the newest of 3 shards landed 2.0 hours ago, not counting 2 that the storage gives no time of, "
        "and 24 are allowed"
    )


def test_a_bucket(tmp_path: Path, bucket: str, s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "interleaved.toml"
    file.write_text(f'[storage]\nraw_root = "{bucket}/raw"\noutput_root = "{bucket}/out"\n{DAY}')
    settings = load_settings(file)
    s3_environment.fs.pipe(f"{bucket}/raw/a.tar", b"1234")
    landed = s3_environment.fs.info(f"{bucket}/raw/a.tar")["LastModified"].timestamp()
    verdict = judge(settings, landed + 3600)
    assert (verdict.passed, verdict.figures["age_hours"], verdict.figures["bytes"]) == (True, pytest.approx(1), 4)
    assert not judge(settings, landed + 25 * 3600).passed
    file.write_text('[storage]\nraw_root = "s3://no-such-bucket/raw"\noutput_root = "s3://no-such-bucket/out"\n')
    gone = judge(load_settings(file), landed)
    assert (gone.passed, gone.severity) == (False, "ERROR")
