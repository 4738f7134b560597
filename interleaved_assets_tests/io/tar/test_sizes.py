"""Bytes of samples in a tar: what is told before it is written is what it takes."""

from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io.rows.batches import gathered
from interleaved_assets.io.storage.limits import LIMITS
from interleaved_assets.io.tar.writer import room_for_samples, sample_sizes, schema_bytes, tar_shard
from interleaved_assets.model.errors import OptionError, UnsupportedModality
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA, align_or_reconcile

SAMPLES = [f"s{number}" for number in range(4)]


def table(**columns: pa.Array) -> pa.Table:
    """Four samples of a metadata row, a text and an image of 0, 700, 1400 and 2100 bytes."""
    rows = [
        row
        for number, name in enumerate(SAMPLES)
        for row in (
            {"sample_id": name, "position": -1, "modality": "metadata", "content_type": "application/json"},
            {"sample_id": name, "position": 0, "modality": "text", "text_content": "é" * 600 * number},
            {"sample_id": name, "position": 1, "modality": "image", "binary_content": bytes(700 * number)},
        )
    ]
    found = pa.Table.from_pylist(rows, schema=INTERLEAVED_SCHEMA)
    for name, column in columns.items():
        found = found.append_column(name, column)
    return align_or_reconcile(found, None)


# the fields of the first document do not show the type of this column
TYPED = {"seen": pa.array([None, None, None] * 3 + [2**40, None, None], pa.uint64())}


def written(path: Path, rows: pa.Table) -> int:
    with tar_shard(str(path)) as tar:
        tar.write(rows)
    return path.stat().st_size


def test_the_sizes_are_those_of_the_members(tmp_path: Path) -> None:
    rows = table()
    sizes = sample_sizes(rows, "a.tar")
    assert len(sizes) == 4
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3]
    for number, name in enumerate(SAMPLES):
        alone = rows.filter(pa.compute.equal(rows["sample_id"], name))
        # of one sample, a multiple of 10,240 bytes has an end mark of 1,024 bytes
        end = written(tmp_path / "one.tar", alone)
        assert end == -(-(sizes[number] + 1024) // 10_240) * 10_240
    assert sample_sizes(rows.slice(0, 0), "a.tar") == []


def test_what_says_the_columns_is_within_its_bound(tmp_path: Path) -> None:
    rows = table(**TYPED)
    with tar_shard(str(tmp_path / "a.tar")) as tar:
        tar.write(rows)
    content = (tmp_path / "a.tar").read_bytes()
    assert b'"schema"' in content
    at_most = sum(sample_sizes(rows, "a.tar")) + schema_bytes(rows.schema)
    assert len(content.rstrip(b"\0")) <= at_most


@pytest.mark.parametrize("size", [10_239, 10_240, 20_479, 20_480, 2**20])
def test_samples_that_fill_the_room_give_a_tar_of_at_most_as_many_bytes(size: int) -> None:
    room = room_for_samples(size)
    assert -(-(room + 1024) // 10_240) * 10_240 <= size < -(-(room + 512 + 1024) // 10_240) * 10_240


def test_rows_that_no_tar_can_hold_are_refused_as_by_the_writer(tmp_path: Path) -> None:
    limits = LIMITS._replace(max_member_bytes=2000)
    with pytest.raises(OptionError) as told:
        sample_sizes(table(), f"{tmp_path}/a.tar", limits)
    with pytest.raises(OptionError) as refused, tar_shard(f"{tmp_path}/a.tar", limits=limits) as tar:
        tar.write(table())
    assert str(told.value) == str(refused.value)
    assert "a.tar: sample 's1': its largest member takes 2138 bytes, over max_member_bytes 2000" in str(told.value)
    other = gathered(pa.Table.from_pylist([{"sample_id": "a", "position": 0, "modality": "video"}]))
    with pytest.raises(UnsupportedModality, match=r"a\.tar: tars have a place for"):
        sample_sizes(other, "a.tar")
