import json
import re
import shutil
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.cli.commands.status import FAILURES_SHOWN
from interleaved_assets_tests.documents import STAGES, good_shard, project, with_downstream


def test_status_names_stale_shards_why_and_what_a_run_would_make(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*curated, "status"]) == 0
    assert capsys.readouterr().out.endswith("\nA run would make nothing.\n")
    project(tmp_path, "[selection]\nmin_sharpness = 80\n")
    good_shard(tmp_path / "raw" / "new.tar")
    assert main([*curated, "status"]) == 0
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    stale = next(row for row in rows if row[0] == "stale")
    assert (stale[1], stale[3], stale[4]) == ("2", ", ".join(with_downstream("filtered")), "a, b")
    assert next(row for row in rows if row[0] == "missing")[1:3] == ["1", "never materialized"]
    assert "min_sharpness 100.0 → 80.0" in " ".join(row[2] for row in rows)
    assert f"A run would take 3 shards through {', '.join(STAGES)}: interleaved" in " ".join(printed.split())
    assert main([*curated, "status", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["shard"], line["state"], line["stages"][0]) for line in lines] == [
        ("a", "stale", "filtered"),
        ("b", "stale", "filtered"),
        ("new", "missing", "normalized"),
    ]


def test_failed_shards_are_named_with_their_errors(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(FAILURES_SHOWN + 2):
        (tmp_path / f"raw/empty-{number:02d}.tar").touch()
    assert main([*curated, "run"]) == 2
    capsys.readouterr()
    assert main([*curated, "status"]) == 0
    printed = capsys.readouterr().out
    named = [line for line in printed.splitlines() if " failed at normalized on 20" in line]
    assert len(named) == FAILURES_SHOWN
    assert re.fullmatch(
        rf"empty-00 failed at normalized on [-\d]+ [:\d]+ UTC: {tmp_path}/raw/empty-00.tar is empty.*", named[0]
    )
    assert "\n… and 2 more failed shards; interleaved status --json has all of them\n" in printed
    assert main([*curated, "status", "--json"]) == 0
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["error"].partition(" is empty")[0] for line in facts if line["state"] == "failed"] == [
        f"{tmp_path}/raw/empty-{number:02d}.tar" for number in range(FAILURES_SHOWN + 2)
    ]


def test_after_a_copy_of_the_outputs_status_says_that_nothing_is_made_again(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "It compares files that were only copied by their hash, and does not make them again."
    for folder in ("raw", "out"):
        shutil.copytree(tmp_path / folder, tmp_path / "copy")
        shutil.rmtree(tmp_path / folder)
        (tmp_path / "copy").rename(tmp_path / folder)
        assert main([*curated, "status"]) == 0
        assert sentence in " ".join(capsys.readouterr().out.split())
    assert main([*curated, "run", "--json"]) == 0
    assert {json.loads(line)["outcome"] for line in capsys.readouterr().out.splitlines()} == {"current"}
    assert main([*curated, "status"]) == 0
    assert sentence not in " ".join(capsys.readouterr().out.split())


def test_files_that_systems_and_copies_in_progress_leave_are_no_shards(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "out/records/normalized"
    for name in ("._a.json", "a (copy).json", "a 2.json", "@eaDir/a.json@SynoEAStream"):
        (records / name).parent.mkdir(exist_ok=True)
        (records / name).write_bytes(b"\0\5\26\7" if name[0] == "." else (records / "a.json").read_bytes())
    for folder in (".~tmp~", ".snapshot/1"):
        good_shard(tmp_path / "raw" / folder / "c.tar")
    assert main([*curated, "status", "--json"]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line)["shard"] for line in printed.out.splitlines()] == ["a", "b"]
    assert "2 files were passed over: 2 .tar, such as .snapshot/1/c.tar" in printed.err
    assert main([*curated, "forget", "--vanished"]) == 0
    assert capsys.readouterr().out.startswith("nothing to forget")


def test_without_shards_status_and_run_say_what_a_shard_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    raw = tmp_path / "raw"
    (raw / "a.zip").write_bytes(b"")
    for command in ("status", "run"):
        assert main(["--settings", str(tmp_path / "interleaved.toml"), command]) == 0
        assert capsys.readouterr().out == (
            f"no shards: no file below {raw} has a name that ends in .tar, .tar.gz, .tgz, "
            ".parquet, .jsonl, .jsonl.gz, .jsonl.zst, .jsonl.zip, .warc, .warc.gz or .pdf; "
            "images need storage.bundles\n"
            f"Below {raw}, 1 file was passed over: 1 .zip, such as a.zip.\n"
        )


def test_a_link_to_a_folder_is_said_not_to_be_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    good_shard(tmp_path / "elsewhere/b.tar")
    (tmp_path / "raw/a.tar").symlink_to(tmp_path / "elsewhere/b.tar")
    (tmp_path / "raw/disk.2").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "raw/loop").symlink_to(tmp_path / "raw")
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "status"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 shard ")
    assert "2 files were passed over: 2 leading to a folder by a link, not followed, such as disk.2/." in printed


def test_without_a_raw_root_status_is_one_line_of_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    (tmp_path / "raw").rmdir()
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "status"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"interleaved: raw root {tmp_path / 'raw'} does not exist: set storage.raw_root in the settings file\n"
    )


def test_a_folder_of_images_needs_bundles(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw/cat.jpg").touch()
    assert main([*curated, "status"]) == 0
    said = "Images are shards in bundles only: set storage.bundles, such as {images = 16}."
    assert said in capsys.readouterr().out


def test_files_that_are_no_shards_are_named_by_their_endings(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = (".DS_Store", "web/.part.tar")
    for name in ("c.tar.xz", "web/d.tar.xz", "e.Tar", "f.zst", "g.bz2", "_SUCCESS", "h.7z", *hidden):
        (tmp_path / "raw" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "raw" / name).touch()
    said = (
        f"Below {tmp_path}/raw, 7 files were passed over: 2 .xz, such as c.tar.xz; 1 .7z, such as h.7z; "
        "1 .Tar, such as e.Tar; 1 .bz2, such as g.bz2; 1 .zst, such as f.zst; 1 other ending. Names of shards end in "
        ".tar, .tar.gz, .tgz, .parquet, .jsonl, .jsonl.gz, .jsonl.zst, .jsonl.zip, .warc, .warc.gz or .pdf; of names "
        "that differ only in the ending of a tar, one is a shard. Unpack or rename files that should be read.\n"
    )
    for command in ("status", "run"):
        assert main([*curated, command]) == 0
        printed = capsys.readouterr()
        assert (printed.out.endswith(f"\n{said}"), printed.err) == (True, "")
        assert main([*curated, command, "--json"]) == 0
        printed = capsys.readouterr()
        assert (said in printed.out, printed.err) == (False, f"interleaved: {said}")
    good_shard(tmp_path / "raw/i.tar", seed=5)
    assert main([*curated, "run"]) == 0
    assert capsys.readouterr().out.endswith(f"\n{said}")


def test_stages_that_do_not_read_a_stale_one_are_not_to_be_made(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, "[scoring]\nmax_pixels = 1000000\n")
    assert main([*curated, "status", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["stages"] for line in lines] == [with_downstream("image_scores")] * 2
    assert main([*curated, "status"]) == 0
    stages = ", ".join(with_downstream("image_scores"))
    assert f"A run would take 2 shards through {stages}: interleaved run" in capsys.readouterr().out


def test_a_failure_is_still_named_after_its_raw_shard_was_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path)
    command = ["--settings", str(tmp_path / "interleaved.toml")]
    (tmp_path / "raw/a.tar").write_bytes(b"no tar")
    assert main([*command, "run"]) == 2
    good_shard(tmp_path / "raw/a.tar")
    capsys.readouterr()
    assert main([*command, "status", "--json"]) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    why = "never materialized: normalized failed, and the raw shard has changed since"
    assert (line["state"], line["why"]) == ("missing", why)
    assert main([*command, "run"]) == 0
    capsys.readouterr()
    assert main([*command, "status"]) == 0
    assert "A run would make nothing." in capsys.readouterr().out
