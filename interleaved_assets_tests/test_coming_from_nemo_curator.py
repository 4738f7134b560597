"""docs/coming-from-nemo-curator.md: the script runs, and every name that it gives for this project exists."""

import inspect
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import interleaved_assets.io
import interleaved_assets.model
import interleaved_assets.scoring
import interleaved_assets.selection
from interleaved_assets.export import ExportSettings, write_images
from interleaved_assets.io import (
    InterleavedParquetReader,
    InterleavedParquetWriter,
    InterleavedWebdatasetReader,
    InterleavedWebdatasetWriter,
)
from interleaved_assets.model import InterleavedBatch, ScoreError
from interleaved_assets.settings import Settings, setting_lines
from interleaved_assets_tests.documents import blurred_image, document, sharp_image, write_shard
from interleaved_assets_tests.io.tars import rows

PAGE = (Path(__file__).parents[1] / "docs/coming-from-nemo-curator.md").read_text(encoding="utf-8")
SCRIPT, BY_REFERENCE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
LIBRARY = (interleaved_assets.io, interleaved_assets.model, interleaved_assets.scoring, interleaved_assets.selection)
PARAMETERS = {
    name
    for what in (InterleavedWebdatasetReader, InterleavedParquetReader, InterleavedWebdatasetWriter, write_images)
    for name in inspect.signature(what).parameters
} | ExportSettings.model_fields.keys()
METHODS = {*dir(InterleavedBatch), "source_files"}
NO_NAMES = {"error", "ignore", "overwrite", "inf"}
"""Values that stand in code style."""


def table_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names_in(cell: str) -> list[str]:
    return [name for name in re.findall(r"`([A-Za-z_][\w.]*)`", cell) if name not in NO_NAMES]


def test_the_script_curates_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "a long text " * 20
    write_shard(tmp_path / "raw/a.tar", {"one": document(words, sharp_image(1), blurred_image())})
    monkeypatch.chdir(tmp_path)
    exec(compile(SCRIPT, "coming-from-nemo-curator.md", "exec"), {})
    (tar,) = (tmp_path / "curated").glob("*.tar")
    assert [row["modality"] for row in rows(str(tar))] == ["metadata", "text", "image"]


def test_the_script_reads_parquet_whose_images_are_in_tars_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = document("one", sharp_image(1), "two", blurred_image(), "three", sharp_image(2))
    write_shard(tmp_path / "raw/a.tar", {"one": body})
    monkeypatch.chdir(tmp_path)
    theirs = InterleavedParquetWriter("parquet", materialize_on_write=False)
    for batch in InterleavedWebdatasetReader("raw"):
        theirs.write(batch)
    exec(compile(BY_REFERENCE, "coming-from-nemo-curator.md", "exec"), {})
    (parquet,) = (tmp_path / "filtered").glob("*.parquet")
    found = pq.read_table(parquet).to_pylist()
    assert [(row["position"], row["binary_content"] is not None) for row in found] == [
        (-1, False),
        *((0, False), (1, True), (2, False), (3, False), (4, True)),
    ]
    with pytest.raises(ScoreError, match="forbidden_path"):
        exec(compile(BY_REFERENCE.replace(', allowed_roots=["raw"]', ""), "", "exec"), {})


@pytest.mark.parametrize("heading", ["Readers", "Writers", "Image export"])
def test_parameters_and_settings_exist(heading: str) -> None:
    keys = {line.name for line in setting_lines(Settings())}
    found = table_of(heading)
    assert len(found) > 5
    for _, library, settings in found:
        assert set(names_in(library)) <= PARAMETERS
        assert {name for name in names_in(settings) if "." in name.strip(".")} <= keys


def test_what_stands_for_a_filter_exists() -> None:
    keys = {line.name for line in setting_lines(Settings())}
    exported = {name for module in LIBRARY for name in module.__all__}
    for _, here, note in table_of("Filters"):
        for name in names_in(here) + [key for key in names_in(note) if "." in key]:
            assert name in keys | exported, name


def test_what_is_said_to_have_the_same_name_has_it() -> None:
    exported = {name for module in LIBRARY for name in module.__all__}
    for there, here in table_of("Batches and schema"):
        names = names_in(there) if here.startswith("the same names") else names_in(here)
        assert names
        assert set(names) <= exported | METHODS
