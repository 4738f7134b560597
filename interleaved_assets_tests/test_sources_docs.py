"""The example of docs/sources.md: a format of one's own goes through the chain."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io import read_shard, unregister_format
from interleaved_assets.io.formats.registry import all_formats
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.settings import setting_lines
from interleaved_assets_tests.documents import good_shard, project

PAGE = (Path(__file__).parents[1] / "docs/sources.md").read_text(encoding="utf-8")


@pytest.fixture
def lines_format() -> Iterator[None]:
    """The format that the page registers."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(code, {})
    yield
    unregister_format("lines")


@pytest.mark.usefixtures("lines_format")
def test_a_format_of_ones_own_goes_through_the_chain(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw").mkdir(exist_ok=True)
    (tmp_path / "raw/poem.txt").write_text("one line\nanother line\n", encoding="utf-8")
    for stage in stage_dag(settings).values():
        take_through(stage, "poem.txt", settings)
    rows = pa.concat_tables(read_shard(str(tmp_path / "out/tars/poem.txt.tar"))).to_pylist()
    assert [(row["sample_id"], row["position"], row["text_content"]) for row in rows] == [
        ("poem.txt", -1, None),
        ("poem.txt", 0, "one line"),
        ("poem.txt", 1, "another line"),
    ]


@pytest.mark.usefixtures("lines_format")
def test_a_changed_option_of_ones_own_format_makes_its_shards_stale_and_no_others(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw").mkdir(exist_ok=True)
    (tmp_path / "raw/poem.txt").write_text("one line\nanother line\n", encoding="utf-8")
    good_shard(tmp_path / "raw/tar.tar")
    keys = ("poem.txt", "tar")
    for stage in stage_dag(settings).values():
        for key in keys:
            take_through(stage, key, settings)
    changed = project(tmp_path, "[reading.lines]\nmin_characters = 10\n")
    dataset = read_dataset_status(changed)
    assert {key: dataset.look(key).status.text for key in keys} == {
        "poem.txt": "normalized stale: reading.lines changed",
        "tar": "complete",
    }
    for stage in stage_dag(changed).values():
        take_through(stage, "poem.txt", changed)
    rows = pa.concat_tables(read_shard(str(tmp_path / "out/tars/poem.txt.tar"))).to_pylist()
    assert [row["text_content"] for row in rows] == [None, "another line"]
    listed = [line.name for line in setting_lines(changed)]
    assert "reading.lines.min_characters" in listed


@pytest.mark.usefixtures("lines_format")
def test_a_wrong_option_of_ones_own_format_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"reading\.lines\.most: unknown key; allowed here: min_characters"):
        project(tmp_path, "[reading.lines]\nmost = 3\n")
    with pytest.raises(SettingsError, match=r"reading\.lines\.min_characters: Input should be a valid integer"):
        project(tmp_path, '[reading.lines]\nmin_characters = "x"\n')


def test_the_page_names_every_format_with_its_endings() -> None:
    lines = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.M))
    for one in all_formats():
        endings = ", ".join(f"`{ending}`" for ending in one.endings)
        assert lines.get(one.name) == endings, f"docs/sources.md, table of formats: | `{one.name}` | {endings} | …"
