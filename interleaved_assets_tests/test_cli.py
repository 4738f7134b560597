import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.cli import _print_error, main
from interleaved_assets.pipeline.execute import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stages.filtered import deciding_tables
from interleaved_assets.shard_paths import ShardPaths
from interleaved_assets_tests.documents import document, good_shard, project, write_shard


@pytest.fixture
def curated(tmp_path: Path) -> list[str]:
    """Arguments that point at a project with two shards that went through the chain."""
    settings = project(tmp_path)
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
        for stage in stage_dag(settings).values():
            take_through(stage, name, settings)
    return ["--settings", str(tmp_path / "interleaved.toml")]


def test_trace_shows_every_stage_and_why_a_row_was_dropped(
    curated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*curated, "trace", "doc-97-b"]) == 0
    printed = capsys.readouterr().out
    assert "in shard a" in printed
    for stage in ("normalized", "image_scores", "filtered"):
        assert stage in printed
    dropped = next(line for line in printed.splitlines() if "dropped: sharpness_below" in line)
    assert "100" in dropped


def test_trace_names_the_raw_shard_and_the_place_in_the_tar(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw" / "a.tar").unlink()  # what has vanished left its outputs
    assert main([*curated, "trace", "doc-97-b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"doc-97-b in shard a, {tmp_path}/raw/a.tar"
    assert lines[-1] == f"final_tars  {tmp_path}/out/tars/a.tar: doc-97-b.json and its images, 3 rows"


def test_trace_passes_over_a_shard_that_cannot_be_read(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/records/normalized/a.json").write_text("{}")
    assert main([*curated, "trace", "doc-98-b"]) == 2
    printed = capsys.readouterr()
    assert "doc-98-b in shard b" in printed.out
    assert "interleaved: shard a was skipped: " in printed.err
    assert main([*curated, "trace", "nobody"]) == 2
    assert "no sample 'nobody' in 2 shards, 1 of them skipped" in capsys.readouterr().err


def test_trace_of_a_tar(curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tar = tmp_path / "out/tars/a.tar"
    assert main([*curated, "trace", "--tar", str(tar)]) == 0
    printed = capsys.readouterr().out
    raw = tmp_path / "raw/a.tar"
    facts = dict(line.strip().split("  ", 1) for line in printed.split("\n\n")[0].splitlines())
    assert facts["shard"].strip() == "a"
    assert facts["raw shard"].strip().startswith(f"{raw}  {raw.stat().st_size:,} bytes  sha256:")
    assert facts["status"].strip() == "complete"
    for text in ("\nfiltered\n", '"min_sharpness": 100.0', "from image_scores"):
        assert text in printed
    with tar.open("ab") as file:
        file.write(b"more")
    assert main([*curated, "trace", "--tar", str(tar)]) == 2
    assert f"{tar} differs from what was written" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["x", "--tar", "y.tar"]])
def test_trace_needs_a_sample_or_a_tar(
    curated: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*curated, "trace", *arguments])
    assert ended.value.code == 2


def test_trace_of_an_unknown_sample(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "trace", "nobody"]) == 1
    assert "no sample 'nobody' in 2 shards" in capsys.readouterr().err


def test_what_if_compares_with_the_settings_in_force(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "what-if", "min_sharpness=0"]) == 0
    lines = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if "│" in line}
    assert [cell.strip() for cell in lines["images_kept"].split("│")[2:5]] == ["8", "10", "+2"]
    assert [cell.strip() for cell in lines["dropped: sharpness_below"].split("│")[2:5]] == ["2", "0", "-2"]


def test_what_if_reads_several_shards_in_parallel(
    curated: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both_are_read = threading.Barrier(2, timeout=30)

    def reading(paths: ShardPaths, *, with_clip: bool, max_batch_bytes: int) -> tuple[pa.Table, pa.Table]:
        both_are_read.wait()
        return deciding_tables(paths, with_clip=with_clip, max_batch_bytes=max_batch_bytes)

    monkeypatch.setattr("interleaved_assets.cli.deciding_tables", reading)
    assert main([*curated, "what-if", "min_sharpness=0"]) == 0
    assert "2 shards" in capsys.readouterr().out


def test_what_if_names_a_shard_that_cannot_be_read(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/image_scores/b.parquet").unlink()
    assert main([*curated, "what-if", "min_sharpness=0"]) == 2
    assert "interleaved: shard b: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("min_sharpness", "'min_sharpness' is not NAME=VALUE"),
        ("min_sharpness=-1", "min_sharpness: Input should be greater than or equal to 0"),
        ("min_sharp=1", "min_sharp: Extra inputs are not permitted"),
    ],
)
def test_what_if_refuses_unknown_settings(
    curated: list[str], capsys: pytest.CaptureFixture[str], change: str, message: str
) -> None:
    assert main([*curated, "what-if", change]) == 2
    assert message in capsys.readouterr().err


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
    _print_error("x" * 1_000_000)  # took hours with a scheme of any length
    assert time.process_time() - started < 10
    assert len(capsys.readouterr().err) == 2002


STEERING = "\x1b[31m\x9b2J\u202e\u2028"
SPELLED = r"\x1b[31m\x9b2J\u202e\u2028"


def test_data_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path)
    sample_id = f"doc{STEERING}"
    write_shard(tmp_path / "raw/a.tar", {sample_id: document("a")})
    for stage in stage_dag(settings).values():
        take_through(stage, "a", settings)
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*base, "trace", sample_id]) == 0
    assert main([*base, "trace", f"{sample_id}2"]) == 1
    assert main([*base, "trace", "x", "--shard", STEERING]) == 1
    assert main([*base, "what-if", f"{STEERING}=1"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main([*base, "settings", STEERING])
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


def test_a_missing_settings_file_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", str(tmp_path / "none.toml"), "settings"]) == 2
    assert capsys.readouterr().err == f"interleaved: no settings file {tmp_path / 'none.toml'}\n"
