"""docs/formats.md and the README: their examples of a shard are read as they say, and the conversion works."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from interleaved_assets.io import ShardLayout
from interleaved_assets.model import LEDGER_SCHEMA
from interleaved_assets.model.columns import INTERLEAVED_COLUMNS
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import good_shard, project, sharp_image
from interleaved_assets_tests.io.tars import encoded, picture, rows, write_tar
from interleaved_assets_tests.layouts import SAMPLES, foreign_tar, jpeg
from interleaved_assets_tests.projects import take_all

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs/formats.md").read_text(encoding="utf-8")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def example(text: str) -> list[tuple[str, bytes]]:
    """The members in the code block whose first line is a JSON member."""
    (block,) = re.findall(r"^```\n(\S+\.json .*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    frames = io.BytesIO()
    picture(1).save(frames, "TIFF", save_all=True, append_images=[picture(2)])
    contents = {".jpg": jpeg(1), ".png": encoded(picture(1)), ".tiff": frames.getvalue()}
    found = []
    for line in block.splitlines():
        name, _, body = line.partition(" ")
        found.append((name, body.strip().encode() or contents[Path(name).suffix]))
    return found


@pytest.mark.parametrize(("text", "images"), [(PAGE, [1, 0, 2]), (README, [1, 0])], ids=["formats", "readme"])
def test_the_example_is_read_as_it_says(tmp_path: Path, text: str, images: list[int]) -> None:
    found = rows(write_tar(tmp_path / "a.tar", *example(text)))
    assert {row["sample_id"] for row in found} == {"doc-1", "doc-2"}
    assert [row["position"] for row in found if row["modality"] == "image"] == images
    assert [row["text_content"] for row in found if row["modality"] == "text"] == [
        "A heading",
        "A caption",
        "Its text",
    ]
    assert [row["materialize_error"] for row in found] == [None] * len(found)
    assert found[0]["url"] == "https://…"


def test_the_example_of_images_with_texts_is_read_as_it_says(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```\n(cat-1\.jpg\n.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    lines = [line.partition(" ")[::2] for line in block.splitlines()]
    contents = {".jpg": jpeg(1), ".png": encoded(picture(1))}
    members = [(name, body.strip().encode() or contents[Path(name).suffix]) for name, body in lines]
    found = rows(write_tar(tmp_path / "a.tar", *members), layout=ShardLayout(layout="images"))
    assert [(row["sample_id"], row["position"], row["modality"], row["text_content"]) for row in found] == [
        ("cat-1", -1, "metadata", None),
        ("cat-1", 0, "image", None),
        ("cat-1", 1, "text", "A cat on a sofa"),
        ("dog", -1, "metadata", None),
        ("dog", 0, "image", None),
    ]
    assert (found[0]["url"], found[0]["width"]) == ("https://…", 640)


def python_block(word: str) -> str:
    """The Python block of the page that has ``word`` in it."""
    (code,) = [code for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if word in code]
    return code


def test_the_query_counts_the_drops_of_all_ledgers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project(tmp_path)
    for name in ("a", "deep/b"):
        good_shard(tmp_path / f"raw/{name}.tar")
        take_all(settings, name)
    (tmp_path / "data").mkdir()
    (tmp_path / "out").rename(tmp_path / "data/out")
    monkeypatch.chdir(tmp_path)
    exec(compile(python_block("pyarrow.dataset"), "docs/formats.md", "exec"), {})
    printed = capsys.readouterr().out
    assert '[["filtered"]]' in printed
    assert '[["sharpness_below"]]' in printed
    assert "[[2]]" in printed


@pytest.mark.parametrize("member", ["members", "frames"])
def test_rows_by_reference_are_read_with_the_library_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    settings = project(folder, 'image_bytes = "referenced"\n')
    raw = folder / "raw/web/articles-000.tar"
    if member == "members":
        good_shard(raw)
    else:
        raw.parent.mkdir(parents=True)
        frames = io.BytesIO()
        first, second = (Image.open(io.BytesIO(sharp_image(seed))) for seed in (1, 2))
        first.save(frames, "TIFF", save_all=True, append_images=[second])
        body = b'{"texts": ["one two three four", null, null], "images": [null, "page_0_image_0", "page_0_image_1"]}'
        write_tar(raw, ("a.json", body), ("a.tiff", frames.getvalue()))
    take_all(settings, "web/articles-000")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(python_block("InterleavedParquetReader"), "docs/formats.md", "exec"), names)
    found = names["rows"]
    assert found["materialize_error"].null_count == found.num_rows
    assert found["binary_content"].null_count < found.num_rows
    exec(compile(python_block("PIL"), "docs/formats.md", "exec"), names)
    names["image"].load()
    assert names["image"].size == (64, 48)


def test_img2dataset_is_converted_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = project(tmp_path)
    (tmp_path / "img2dataset").mkdir()
    (tmp_path / "img2dataset/00000.tar").write_bytes(foreign_tar("img2dataset"))
    monkeypatch.chdir(tmp_path)
    exec(compile(python_block("webdataset"), "docs/formats.md", "exec"), {})
    record = take_through(stage_dag(settings)["normalized"], "00000", settings).record
    assert (record.counts_out.samples, record.counts_out.texts, record.counts_out.images) == (SAMPLES,) * 3
    assert record.counted["unreferenced_members"] == 0


def documented_columns(first: str) -> dict[str, str]:
    """The columns of the table whose first line begins with ``first``, each with its type as the page has it."""
    (table,) = re.findall(rf"^(\| {re.escape(first)}.*?)\n\n", PAGE, flags=re.DOTALL | re.MULTILINE)
    found = {}
    for line in table.splitlines():
        names, types, _ = (cell.strip() for cell in line.strip("|").split("|", 2))
        columns = re.findall(r"`(\w+)`", names)
        kinds = types.removesuffix(", not null").split(", ")
        found |= dict(zip(columns, kinds * len(columns) if len(kinds) == 1 else kinds, strict=True)) if columns else {}
    return found


def test_the_page_has_the_columns_of_rows_and_ledgers_with_their_types() -> None:
    assert list(documented_columns("`sample_id` | string, not null").items()) == [
        (name, dtype) for name, dtype, *_ in INTERLEAVED_COLUMNS
    ]
    assert documented_columns("`sample_id`, `position`, `modality`") == {
        field.name: str(field.type) for field in LEDGER_SCHEMA
    }
