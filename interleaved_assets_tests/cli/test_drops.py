import json
import shutil
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard
from interleaved_assets_tests.projects import take_all

STEERING = "\x1b[31m\x9b2J\u202e\u2028"


def test_drops_lists_reasons_and_contents(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "drops", "--shard", "a"]) == 0
    printed = capsys.readouterr().out
    assert "a: 1 dropped row" in printed
    (line,) = [line for line in printed.splitlines() if "doc-97-b" in line and "│" in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["doc-97-b", "2", "image", "filtered", "sharpness_below", "0", "100", "doc-97-b.2.png"]


def test_drops_as_json_has_whole_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path, "[selection]\nmax_ratio = 0.001\n")
    text = f"long{STEERING} " * 50
    write_shard(tmp_path / "raw/a.tar", {"doc": document(text, sharp_image(1), year=2024)})
    take_all(settings, "a")
    base = ["--settings", str(tmp_path / "interleaved.toml"), "drops", "--shard", "a"]
    assert main([*base, "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.isascii()
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [(row["position"], row["reason"], row["content"]) for row in rows] == [
        (-1, "ratio_above", '{"year": 2024}'),
        (0, "ratio_above", text),
        (1, "ratio_above", "doc.1.png"),
    ]
    assert rows[0]["measured"] == pytest.approx(1 / 50)
    assert main(base) == 0
    assert f"… ({len(text)} characters)" in "".join(
        line.split("│")[-2].strip() for line in capsys.readouterr().out.splitlines() if "│" in line
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "nobody"], "no shard 'nobody' has been materialized; interleaved status --json lists all shards"),
        (["--shard", "a.tar"], "no shard 'a.tar' has been materialized: did you mean a?"),
        (["--shard", "../a"], "no shard '../a' has been materialized; interleaved status --json lists"),
        (["--shard", "a", "--reason", "blur"], "was dropped for 'blur'; its reasons: sharpness_below"),
    ],
)
def test_drops_of_nothing(
    curated: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([*curated, "drops", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_drops_of_all_shards_up_to_a_limit(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "drops", "--reason", "sharpness_below"]) == 0
    printed = capsys.readouterr()
    assert ("a: 1 dropped row" in printed.out, "b: 1 dropped row" in printed.out, printed.err) == (True, True, "")
    assert main([*curated, "drops", "--json", "--limit", "1"]) == 0
    printed = capsys.readouterr()
    (row,) = map(json.loads, printed.out.splitlines())
    assert (row["shard"], row["content"]) == ("a", "doc-97-b.2.png")
    assert printed.err == "interleaved: stopped after 1 row; --limit N lists more\n"
    assert main([*curated, "drops", "--reason", "blur"]) == 1
    assert "no row in 2 shards was dropped for 'blur'; its reasons: sharpness_below" in capsys.readouterr().err


def test_drops_says_that_it_stopped_only_where_rows_are_left(
    curated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--limit", "2"], ["--shard", "a", "--limit", "1"], ["--reason", "sharpness_below"]):
        assert main([*curated, "drops", *arguments]) == 0
        assert capsys.readouterr().err == ""


def test_drops_of_a_copy_and_of_shards_whose_rows_are_gone(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.move(out, tmp_path / "before")
    shutil.copytree(tmp_path / "before", out, copy_function=shutil.copyfile)  # which keeps no times
    assert main([*curated, "drops", "--json"]) == 0
    copied = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["shard"], row["content"]) for row in copied] == [("a", "doc-97-b.2.png"), ("b", "doc-98-b.2.png")]
    for folder in ("normalized", "filtered"):
        shutil.rmtree(out / folder)
    assert main([*curated, "drops", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{**row, "content": None} for row in copied]


def test_a_ledger_that_is_not_that_of_its_record_is_skipped(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledgers = tmp_path / "out/dropped/filtered"
    shutil.copyfile(ledgers / "b.parquet", ledgers / "a.parquet")
    (ledgers / "b.parquet").unlink()
    assert main([*curated, "drops"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"interleaved: shard {key} was skipped: {ledgers}/{key}.parquet is gone or not that of its record: "
        f"interleaved run {key}"
        for key in "ab"
    ]


def test_drops_of_a_project_without_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "drops"]) == 1
    assert capsys.readouterr().err == "interleaved: no shard has been materialized yet: interleaved run\n"


def test_a_shard_whose_ledger_cannot_be_read_is_skipped(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/records/filtered/a.json").write_text("{")
    assert main([*curated, "drops"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("interleaved: shard a was skipped: ")
    assert "b: 1 dropped row" in printed.out
    assert main([*curated, "drops", "--shard", "a"]) == 2


def test_large_values_have_all_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path, "[selection]\nmin_sharpness = 0\ndocument.words = { max = 12345 }\n")
    write_shard(tmp_path / "raw/a.tar", {"doc": document("word " * 12_346, sharp_image(1))})
    take_all(settings, "a")
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    for command in ("drops", "trace"):
        assert main([*base, command, *(["--shard", "a"] if command == "drops" else ["doc"])]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "document_words_above" in line]
        cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
        assert len(cells) == 3, command
        assert all("12,346" in line and "12345" in line for line in cells), command
