import json
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.cli.commands import trace
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import blurred_image, document, project, sharp_image, stages_before, write_shard
from interleaved_assets_tests.io.tars import frames_document, picture, tiff, write_tar
from interleaved_assets_tests.projects import take_all


def test_trace_shows_every_stage_and_why_a_row_was_dropped(
    curated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*curated, "trace", "doc-97-b"]) == 0
    printed = capsys.readouterr().out
    assert "in shard a" in printed
    for stage in stages_before("final_tars"):
        assert stage in printed
    dropped = next(line for line in printed.splitlines() if "dropped: sharpness_below" in line)
    assert "100" in dropped


def test_trace_for_a_terminal_keeps_no_facts_for_json(curated: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, trace, "_facts_of_sample", lambda *_: pytest.fail("a sample may have 500,000 rows"))
    assert main([*curated, "trace", "doc-97-b"]) == 0


def test_trace_names_the_raw_shard_and_the_place_in_the_tar(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw" / "a.tar").unlink()  # what has vanished left its outputs
    assert main([*curated, "trace", "doc-97-b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"doc-97-b in shard a, {tmp_path}/raw/a.tar"
    assert lines[-1] == f"final_tars  {tmp_path}/out/tars/a.tar: doc-97-b.json, doc-97-b.1.png: 3 rows"


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
    assert facts["raw shard"].strip().startswith(f"{raw}  {raw.stat().st_size:,} bytes  xxh3:")
    assert facts["status"].strip() == "complete"
    for text in ("\nfiltered\n", '"min_sharpness": 100.0', "from image_scores", '"filters": "sharpness'):
        assert text in printed
    with tar.open("ab") as file:
        file.write(b"more")
    assert main([*curated, "trace", "--tar", str(tar)]) == 2
    assert f"{tar} differs from what was written" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["x", "--tar", "y.tar"]])
def test_trace_needs_a_sample_or_a_tar(
    curated: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main([*curated, "trace", *arguments]) == 2
    assert capsys.readouterr().err == (
        "interleaved: trace takes either SAMPLE_ID or --tar PATH; see interleaved trace --help\n"
    )


def test_trace_of_an_unknown_sample(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "trace", "nobody"]) == 1
    assert "no sample 'nobody' in 2 shards" in capsys.readouterr().err


def test_trace_takes_the_name_of_an_image(curated: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*curated, "trace", "doc-97-b.2.png"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("doc-97-b.2.png is the image at position 2 of sample doc-97-b in shard a\n")
    assert "dropped: sharpness_below" in printed
    assert main([*curated, "trace", "doc-97-b.2.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == [{"shard": "a", "sample_id": "doc-97-b", "position": 2, "image": "doc-97-b.2.png"}]
    assert [shard["shard"] for shard in found["shards"]] == ["a"]
    assert main([*curated, "trace", "doc-97-b.2.pn", "--shard", "a"]) == 1
    assert capsys.readouterr().err == ("interleaved: no sample 'doc-97-b.2.pn' in 1 shard, and no image of this name\n")


def test_trace_takes_the_names_that_drops_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path, "[selection]\nmin_short_side = 100\n[publish]\nmax_lost_samples = 1\n")
    tokens = [f"page_0_image_{number}" for number in range(2)]
    frames = tiff(picture(1), picture(2), compression="tiff_lzw")
    write_tar(tmp_path / "raw/a.tar", ("e0ca.json", frames_document(*tokens)), ("e0ca.tiff", frames))
    take_all(settings, "a")
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*base, "drops", "--json"]) == 0
    names = [json.loads(line)["content"] for line in capsys.readouterr().out.splitlines()]
    assert {"e0ca.tiff, frame 0", "e0ca.tiff, frame 1"} <= set(names)
    of_frame = [f"e0ca.tiff, frame {n} is the image at position {n} of sample e0ca in shard a" for n in range(2)]
    for name, lines in (("e0ca.tiff", of_frame), ("e0ca.tiff, frame 1", of_frame[1:])):
        assert main([*base, "trace", name]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert [line for line in printed if " is the image " in line] == lines
        assert printed.count(f"e0ca in shard a, {tmp_path}/raw/a.tar") == 1


def lines_of(printed: str, stage: str) -> list[list[str]]:
    """The cells of the table of ``stage``, a list a line."""
    lines = printed.split(f"\n{stage}  ", maxsplit=1)[1].splitlines()
    table = lines[1 : 1 + next(number for number, line in enumerate(lines) if line.startswith("└"))]
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table if line.startswith("│")]
    return [line for line in cells if line[0]]  # not the second half of a folded cell


def test_trace_shows_dropped_rows_in_their_place_and_sums_up_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project(tmp_path, '[errors]\non_materialize_error = "warn"\n[selection]\non_score_error = "warn"\n')
    images = [sharp_image(1), blurred_image(), b"no image", sharp_image(2)]
    write_shard(tmp_path / "raw/a.tar", {"doc": document("one", *images, "two", "three")})
    take_all(settings, "a")
    base = ["--settings", str(tmp_path / "interleaved.toml"), "trace", "doc"]
    assert main(base) == 0
    printed = capsys.readouterr().out
    assert lines_of(printed, "normalized") == [
        ["-1 to 6", "1 metadata, 3 text, 4 image", "kept", "", "", ""],
    ]
    scores = lines_of(printed, "image_scores")
    assert [line[:3] for line in scores] == [
        ["1 to 2", "2 image", "scored"],
        ["3", "image", "error: undecodable_image"],
        ["4", "image", "scored"],
    ]
    assert "sharpness 0 to" in scores[0][3]
    assert scores[0][3].startswith("aspect_ratio 1.333, ")  # one value, no range
    assert scores[1][5].startswith("undecodable_image:")
    assert [line[:3] for line in lines_of(printed, "filtered")] == [
        ["-1 to 1", "1 metadata, 1 text, 1 image", "kept"],
        ["2", "image", "dropped: sharpness_below"],
        ["3 to 6", "2 image, 2 text", "kept"],
    ]
    assert main([*base, "--all"]) == 0
    every = lines_of(capsys.readouterr().out, "filtered")
    assert [line[0] for line in every] == ["-1", "0", "1", "2", "3", "4", "5", "6"]


def test_trace_and_drops_show_what_became_of_exported_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project(
        tmp_path,
        '[selection]\non_score_error = "warn"\n[export]\nenabled = true\nreencode = "jpeg"\nnames = "sequence"\n',
    )
    damaged = sharp_image(3)[:400]
    documents = {"doc": document("one", sharp_image(1), damaged), "other": document("two", sharp_image(2))}
    write_shard(tmp_path / "raw/a.tar", documents)
    for stage in stage_dag(settings).values():
        outcome = take_through(stage, "a", settings)
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*base, "trace", "doc"]) == 0
    printed = capsys.readouterr().out
    name = outcome.record.notes["name"]
    exported, dropped = printed.partition("image_export  ")[2].splitlines()[4:6]
    assert [cell.strip() for cell in exported.split("│")[1:4]] == ["1", "image", "exported"]
    assert [cell.strip() for cell in dropped.split("│")[1:4]] == ["2", "image", "dropped: undecodable_image"]
    assert f"{name}-00000000.jpg" in "".join(printed.split())
    assert main([*base, "drops", "--shard", "a", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["sample_id"], row["position"], row["stage"], row["content"]) == ("doc", 2, "image_export", "doc.2.png")


def test_trace_names_the_part_of_a_split_tar_and_its_members(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project(tmp_path, "[final_tars]\nmax_samples_per_tar = 1\n")
    documents = {f"doc-{number}": document("some words", sharp_image(number)) for number in range(3)}
    documents["many"] = document("words", *(sharp_image(number) for number in range(14)))
    write_shard(tmp_path / "raw/a.tar", documents)
    take_all(settings, "a")
    base = ["--settings", str(tmp_path / "interleaved.toml"), "trace"]
    assert main([*base, "doc-1"]) == 0
    part = f"{tmp_path}/out/tars/a~00001.tar"
    assert capsys.readouterr().out.splitlines()[-1] == f"final_tars  {part}: doc-1.json, doc-1.1.png: 3 rows"
    assert main([*base, "doc-1", "--json"]) == 0
    place = json.loads(capsys.readouterr().out)["shards"][0]["stages"][-1]
    assert place["output"] == f"{tmp_path}/out/tars/a~{{00000..00003}}.tar"
    assert (place["tar"], [member["name"] for member in place["members"]]) == (part, ["doc-1.json", "doc-1.1.png"])
    image = place["members"][1]
    assert Path(part).read_bytes()[image["offset"] :][: image["size"]] == documents["doc-1"][1][0]
    for option, count, last in (((), 12, "and 4 more"), (("--all",), 15, "many.14.png")):
        assert main([*base, "many", *option]) == 0
        names = capsys.readouterr().out.splitlines()[-1].split(": ")[1].split(", ")
        assert (names[0], names[-1], len(names)) == ("many.json", last, count)
    Path(part).unlink()
    assert main([*base, "doc-1", "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["shards"][0]["stages"][-1]["tar"] is None
    assert f"interleaved: cannot read {part}: " in printed.err
