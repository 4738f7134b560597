"""Members that no document names, in the column that holds them: their list, and the removal of images among them."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows import content_types
from interleaved_assets.io.tar.layout import UNREFERENCED_MEMBERS, split_extension
from interleaved_assets.io.tar.tar_rows import UNREFERENCED_TYPE


class UnreferencedMember(NamedTuple):
    """A member, or a frame of one, that no document names; size in bytes."""

    extension: str
    """Extension in lower case, with its dot; empty without one."""
    size: int
    is_image: bool
    """True if it is an image, by its extension or its first bytes."""


def unreferenced_members(table: pa.Table) -> list[UnreferencedMember]:
    """Return the members in the column ``_unreferenced_members`` of ``table``; none without that column."""
    if UNREFERENCED_MEMBERS not in table.column_names:
        return []
    return _described(pc.list_flatten(table[UNREFERENCED_MEMBERS]))


def without_unreferenced_images(table: pa.Table) -> tuple[pa.Table, int]:
    """Return ``table`` without the images in its column ``_unreferenced_members``, and their number.

    A row that loses all of its members has null there.
    """
    images = sum(member.is_image for member in unreferenced_members(table))
    if not images:
        return table, 0
    lists = table[UNREFERENCED_MEMBERS].combine_chunks()
    members = lists.flatten()
    stays = np.array([not member.is_image for member in _described(members)])
    left = np.bincount(pc.list_parent_indices(lists).to_numpy()[stays], minlength=len(lists))
    offsets = pa.array(np.concatenate([[0], np.cumsum(left)]), pa.int32())
    kept = pa.ListArray.from_arrays(
        offsets, members.filter(pa.array(stays)), type=UNREFERENCED_TYPE, mask=pa.array(left == 0)
    )
    place = table.column_names.index(UNREFERENCED_MEMBERS)
    return table.set_column(place, table.schema.field(place), kept), images


def _described(members: pa.ChunkedArray | pa.StructArray) -> list[UnreferencedMember]:
    content = pc.struct_field(members, "content")
    columns = (
        pc.struct_field(members, "name").to_pylist(),
        pc.binary_length(content).to_pylist(),
        pc.binary_slice(content, 0, content_types.SNIFFED_BYTES).to_pylist(),
    )
    return [_member(*cells) for cells in zip(*columns, strict=True)]


def _member(name: str, size: int, head: bytes) -> UnreferencedMember:
    extension = split_extension(name)[1].lower()
    sniffed = content_types.sniff(head)
    # the mark of a BMP is two letters, with which a text may begin; the name of a frame may end in anything
    is_image = "#frame=" in name or content_types.type_of(extension) is not None or sniffed not in (None, "image/bmp")
    return UnreferencedMember(extension.partition("#")[0], size, is_image)
