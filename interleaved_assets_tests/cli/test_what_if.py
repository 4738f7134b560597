import json
import shutil
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard
from interleaved_assets_tests.system_calls import system_calls


def test_what_if_compares_with_the_settings_in_force(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "what-if", "min_sharpness=0"]) == 0
    lines = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if "│" in line}
    assert [cell.strip() for cell in lines["images_kept"].split("│")[2:5]] == ["8", "10", "+2"]
    assert [cell.strip() for cell in lines["dropped: sharpness_below"].split("│")[2:5]] == ["2", "0", "-2"]
    assert main([*curated, "what-if", "min_sharpness=0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["shards"], found["now"]["images_kept"], found["then"]["images_kept"]) == (2, 8, 10)


def test_what_if_reads_several_shards_in_parallel(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    both_are_read, met = threading.Barrier(2, timeout=60), set()

    def see(event: str, path: str) -> None:
        if event == "open" and "/image_scores/" in path and path.endswith(".parquet") and path not in met:
            met.add(path)
            both_are_read.wait()

    with system_calls(see):
        assert main([*curated, "what-if", "min_sharpness=0"]) == 0
    assert len(met) == 2
    assert "2 shards" in capsys.readouterr().out


def cells_of(printed: str) -> dict[str, list[str]]:
    """The numbers of the table by the name at the start of the line."""
    lines = [line.split("│") for line in printed.splitlines() if "│" in line]
    return {line[1].strip(): [cell.strip() for cell in line[2:5]] for line in lines}


def test_a_shard_that_is_named_twice_counts_once(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "what-if", "min_sharpness=0", "--shard", "a", "--shard", "a"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("min_sharpness=0: 1 shard ")
    assert cells_of(printed)["images_kept"] == ["4", "5", "+1"]


def test_what_if_leaves_out_a_shard_that_cannot_be_read_and_names_it(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/image_scores/b.parquet").unlink()
    assert main([*curated, "what-if", "min_sharpness=0"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("interleaved: shard b was left out: ")
    assert "min_sharpness=0: 1 of 2 shards" in printed.out
    assert cells_of(printed.out)["images_kept"] == ["4", "5", "+1"]


def test_what_if_names_rows_that_are_decided_differently(
    curated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*curated, "what-if", "min_sharpness=0", "--examples", "1"]) == 0
    printed = capsys.readouterr().out
    assert "1 of 2 rows decided differently" in printed
    (line,) = [line for line in printed.splitlines() if "doc-97-b" in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["a", "doc-97-b", "2", "image", "kept", "sharpness_below", "0", "100", "doc-97-b.2.png"]
    assert main([*curated, "what-if", "min_sharpness=1e9", "min_short_side=1", "--examples", "99", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    images = [row for row in found["examples"] if row["modality"] == "image"]
    assert len(images) == found["now"]["images_kept"] - found["then"]["images_kept"]
    assert {(row["then"], row["reason"], row["threshold"]) for row in images} == {("dropped", "sharpness_below", 1e9)}
    assert main([*curated, "what-if", "min_sharpness=100", "--examples", "5"]) == 0
    assert "0 rows decided differently" in capsys.readouterr().out


def test_examples_are_of_both_kinds_and_of_every_shard(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = [*curated, "what-if", "min_sharpness=0", "text.words.min=1000", "--examples"]
    assert main([*command, "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["examples"]
    assert [(row["shard"], row["then"]) for row in found] == [
        ("a", "dropped"), ("a", "kept"), ("b", "dropped"), ("b", "kept")
    ]  # fmt: skip
    assert all(row["content"] for row in found)
    assert main([*command, "3"]) == 0
    assert "3 of 12 rows decided differently" in capsys.readouterr().out
    assert main([*command, "12"]) == 0
    assert "\n12 rows decided differently" in capsys.readouterr().out


def test_contents_are_read_of_listed_rows_alone(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []

    def see(event: str, path: str) -> None:
        if event == "open" and "/normalized/" in path and path.endswith(".parquet"):
            opened.append(Path(path).stem)

    with system_calls(see):
        assert main([*curated, "what-if", "min_sharpness=0", "--examples", "1"]) == 0
    assert (opened.count("a"), opened.count("b")) == (2, 1)


def test_contents_that_cannot_be_read_are_left_out(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "out/normalized/a.parquet"
    group = pq.read_metadata(rows).row_group(0)
    texts = next(group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == "text_content")
    content = bytearray(rows.read_bytes())
    start = texts.dictionary_page_offset or texts.data_page_offset
    content[start : start + texts.total_compressed_size] = bytes(texts.total_compressed_size)
    rows.unlink()
    rows.write_bytes(content)
    assert main([*curated, "what-if", "min_sharpness=0", "--examples", "2", "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"interleaved: contents of shard a were left out: {rows}")
    found = json.loads(printed.out)
    assert (found["shards"], [row["content"] for row in found["examples"]]) == (2, [None, "doc-98-b.2.png"])


def test_what_if_refuses_a_key_of_no_shard(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "what-if", "min_sharpness=0", "--shard", "a", "--shard", "b.tar"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "",
        "interleaved: no shard 'b.tar' has been materialized: did you mean b?\n",
    )


def test_what_if_says_what_now_means(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "what-if", "min_sharpness=0"]) == 0
    assert "now: the settings in force, applied to the stored scores" in capsys.readouterr().out


def test_what_if_refuses_a_bound_on_scores_that_do_not_exist(
    curated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*curated, "what-if", "min_clip=0.2"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    first, second = printed.err.splitlines()
    assert first.startswith("interleaved: shard a was left out: filter 'clip' needs the score clip_score")
    assert second.startswith("interleaved: 2 shards in all were left out with the message: filter 'clip' needs")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("min_sharpness", "'min_sharpness' is not NAME=VALUE"),
        ("min_sharpness=-1", "min_sharpness: Input should be greater than or equal to 0"),
        ("min_sharp=1", "min_sharp: no such setting; did you mean min_sharpness,"),
    ],
)
def test_what_if_refuses_unknown_settings(
    curated: list[str], capsys: pytest.CaptureFixture[str], change: str, message: str
) -> None:
    assert main([*curated, "what-if", change]) == 2
    assert message in capsys.readouterr().err


def test_what_if_without_clip_scores_names_the_setting(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for change, setting in (("min_clip=0.3", "clip.enabled"), ("min_aesthetic=5", "clip.enabled and clip.heads")):
        assert main([*curated, "what-if", change]) == 2
        assert f"turn on what measures it ({setting}) and make the shards again" in capsys.readouterr().err


def test_what_if_of_a_bound_of_an_own_filter(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "what-if", "own.sharpness_value.max=-1"]) == 2
    assert "filter 'sharpness_value' needs the score sharpness_value, and the scores have" in capsys.readouterr().err
    assert main([*curated, "what-if", "own.width.max=40", "own.width.min=1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["now"]["images_kept"], found["then"]["images_kept"]) == (8, 0)
    assert found["then"]["images_dropped"]["width_above"] == 8
    for change in ("own.width=3", "own.width.most=3"):
        assert main([*curated, "what-if", change]) == 2
        assert "bounds of an own filter are own.<filter>.min and own.<filter>.max" in capsys.readouterr().err


def test_another_field_of_the_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, '[selection.own.x]\nfield = "a"\nmin = 2\n[selection.own.x2]\nfield = "a"\nmax = 9\n')
    write_shard(tmp_path / "raw" / "a.tar", {f"d{n}": document("one", sharp_image(n), a=n, b=-n) for n in (1, 2, 3)})
    command = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*command, "run"]) == 0
    capsys.readouterr()
    assert main([*command, "what-if", "own.x.field=b", "own.x.min=-2", "own.x2.field=b"]) == 0
    cells = cells_of(capsys.readouterr().out)
    assert cells["samples_kept"] == ["2", "2", "+0"]
    assert cells["dropped: x_below"] == ["3", "3", "+0"]
    assert main([*command, "what-if", "own.x.field=b", "own.x2.field=b"]) == 0
    assert cells_of(capsys.readouterr().out)["samples_kept"] == ["2", "0", "-2"]


def test_what_if_of_bounds_on_documents_and_texts(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "what-if", "min_sharpness=0", "text.words.min=1000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["then"]["dropped"]["text_words_below"] == 10  # all texts; the images stay
    assert (found["then"]["images_kept"], found["then"]["samples_kept"]) == (10, 6)
    assert main([*curated, "what-if", "document.words.min=1000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["then"]["samples_kept"] == 0
    assert main([*curated, "what-if", 'document.language.in=["en"]']) == 2
    assert "needs the score language, which the scorer 'language' measures" in capsys.readouterr().err
    assert main([*curated, "what-if", "document.word.min=2"]) == 2
    assert "no score of texts named word; did you mean words" in capsys.readouterr().err


def test_what_if_names_one_shard_of_those_that_lack_the_scores_of_a_stage(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(tmp_path / "out/document_scores")
    assert main([*curated, "what-if", "min_sharpness=0"]) == 2
    printed = capsys.readouterr()
    first, second = printed.err.splitlines()
    assert printed.out == ""
    assert first.startswith("interleaved: shard a was left out: ")
    assert "/out/document_scores/a.parquet" in first
    assert second.startswith("interleaved: 2 shards in all were left out with the message: ")
    assert "/out/document_scores/KEY.parquet" in second
