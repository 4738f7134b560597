"""The example of docs/sources.md: a format of one's own goes through the chain."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io import read_shard, unregister_format
from interleaved_assets.io.formats.registry import all_formats
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import project

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


def test_the_page_names_every_format_with_its_endings() -> None:
    for one in all_formats():
        (line,) = re.findall(rf"^\| `{one.name}` \| (.*?) \|", PAGE, re.M)
        assert line == ", ".join(f"`{ending}`" for ending in one.endings)
