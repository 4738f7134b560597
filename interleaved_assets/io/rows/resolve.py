"""Resolve the locators of image rows: to the source to fetch, and to the bytes in it, or to the row error."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from interleaved_assets.io.rows.content_types import SNIFFED_BYTES, TIFF, sniff
from interleaved_assets.io.rows.fetch import Access, Contents, Source, is_compressed_tar
from interleaved_assets.io.rows.raw_versions import RawShards
from interleaved_assets.io.storage import check_allowed
from interleaved_assets.io.storage.ranges import BlockReader, Content
from interleaved_assets.io.tiff.frames import TiffFrame, frame_pieces, tiff_frames
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.source_ref import parse_source_ref


class RowContent(NamedTuple):
    """The parts of a row's bytes; ``content_type`` is set if their type differs from the one that the row states."""

    pieces: Sequence[Content]
    content_type: str | None = None


Resolved: TypeAlias = RowContent | str
"""The result for one row: its bytes, or its row error."""


class Container(NamedTuple):
    """A source whose frames rows or documents name."""

    other_type: str | None = None
    """Its type if it is an image of another type than TIFF, which is frame 0."""
    frames: Sequence[TiffFrame] = ()
    problem: str = ""
    """Why it has no frames, if it is no other image."""


Plan: TypeAlias = tuple[Source, int | None] | str
"""The source to fetch for one row, and the frame to take from it, None for all of it; or the row's error."""


def source_of(locator: str | None, access: Access, allowed: dict[str, bool], raws: RawShards) -> Plan:
    """Return the source to fetch for a row, or the row's error; ``allowed`` caches which paths are allowed."""
    try:
        ref = parse_source_ref(locator)
    except ValueError as error:
        return row_error("invalid_source_ref", str(error))
    path = ref.path
    if not path:
        return row_error("missing_source", "the row has neither bytes nor a path in source_ref")
    if path not in allowed:
        allowed[path] = check_allowed(path, access.allowed_roots)
    if not allowed[path]:
        roots = ", ".join(dict.fromkeys(access.allowed_roots)) or "any allowed root"
        above = "allowed_roots in the library, storage.raw_root in a project, has to name a folder above it"
        return row_error("forbidden_path", f"{path} is not below {roots}: {above}")
    if (problem := raws.problem(path)) is not None:
        return problem
    if ref.part is not None:
        return Source(path, part=ref.part), ref.frame_index
    # an empty range beside a member's name means that the range is not known
    by_name = ref.member and (ref.byte_size == 0 or is_compressed_tar(path))
    if ref.byte_offset is not None and ref.byte_size is not None and not by_name:
        return Source(path, None, ref.byte_offset, ref.byte_offset + ref.byte_size), ref.frame_index
    if ref.member is None and (ref.byte_offset is not None or ref.byte_size is not None):
        return row_error("invalid_source_ref", "byte_offset and byte_size go together")
    return Source(path, ref.member), ref.frame_index


def source_in(uri: str, locator: str | None) -> Plan:
    """Return the source in ``uri`` that the locator of a row by reference names, or the row's error."""
    try:
        ref = parse_source_ref(locator)
    except ValueError as error:
        return row_error("invalid_source_ref", str(error))
    end = None if ref.byte_offset is None or ref.byte_size is None else ref.byte_offset + ref.byte_size
    return Source(uri, None, ref.byte_offset, end, ref.part), ref.frame_index


def resolve(plans: Mapping[int, Plan], contents: Contents) -> dict[int, Resolved]:
    """Return the bytes or the row error of each row. ``contents`` is asked once for all sources."""
    found = contents(dict.fromkeys(plan[0] for plan in plans.values() if not isinstance(plan, str)))
    frames: dict[Source, Container] = {}
    return {
        row: plan if isinstance(plan, str) else _outcome(*plan, found[plan[0]], frames) for row, plan in plans.items()
    }


def _outcome(
    source: Source,
    frame: int | None,
    data: Content | str,
    frames: dict[Source, Container],
) -> Resolved:
    if isinstance(data, str):
        return data
    if frame is None:
        return RowContent([data])
    if source not in frames:
        frames[source] = container_of(data)
    other_type, found, problem = frames[source]
    if other_type is not None:
        if frame == 0:
            return RowContent([data], other_type)
        detail = f"frame {frame} of what is {other_type} and no TIFF: its one image is frame 0"
        return row_error("frame_out_of_range", detail)
    if problem:
        return row_error("invalid_tiff", problem)
    if frame >= len(found) and found[-1].error is not None:
        # if the chain of directories is damaged, the number of frames is unknown
        return row_error("invalid_tiff", found[-1].error)
    if frame >= len(found):
        return row_error("frame_out_of_range", f"frame {frame} of a TIFF with {len(found)}")
    try:
        return RowContent(frame_pieces(BlockReader(data), found[frame]))
    except ValueError as error:
        return row_error("invalid_tiff", str(error))


def container_of(data: Content) -> Container:
    """Return the frames of a TIFF, or what ``data`` is instead."""
    tiff = BlockReader(data)
    content_type = sniff(tiff.read(0, SNIFFED_BYTES))
    if content_type not in (None, TIFF):
        return Container(content_type)
    try:
        return Container(frames=tiff_frames(tiff))
    except ValueError as error:
        return Container(problem=str(error))
