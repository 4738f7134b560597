"""Ranges of local files: they slice like bytes, and are read only when their bytes are asked for."""

from pathlib import Path

import numpy as np
import pytest

from interleaved_assets.io.rows.batches import binary_column
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.io.storage.ranges import FileRange
from interleaved_assets.model.errors import StorageError


def test_ranges_have_the_length_the_slices_and_the_bytes_of_what_they_cover(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    with LocalFile(path, str(path)) as file:
        found = FileRange(file, 2, 6)
        assert (len(found), bytes(found), bytes(found[1:3]), bytes(found[1:][:2][1:])) == (6, b"234567", b"34", b"4")
        # beyond its end and that of the file
        assert [bytes(found[4:99]), bytes(found[2**70 :]), bytes(FileRange(file, 8, 2**40))] == [b"67", b"", b"89"]
        assert len(FileRange(file, 99, 5)) == 0
        buffer = np.zeros(3, np.uint8)
        found[:3].read_into(buffer)
        assert buffer.tobytes() == b"234"


def test_columns_are_filled_from_ranges_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    with LocalFile(path, str(path)) as file:
        whole = FileRange(file, 0, 10)
        column = binary_column([[b"head ", whole[3:5]], None, [whole[8:], whole[:1], memoryview(b"!")], [whole[5:5]]])
    assert column.to_pylist() == [b"head 34", None, b"890!", b""]


def test_ranges_of_a_file_that_has_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    with LocalFile(path, str(path)) as file:
        found = FileRange(file, 2, 6)
        path.write_bytes(b"01234")
        with pytest.raises(StorageError, match="a changed while it was read"):
            bytes(found)
        with pytest.raises(StorageError, match="a changed while it was read"):
            binary_column([[found]])
