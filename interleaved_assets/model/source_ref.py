"""The JSON locator in the ``source_ref`` column: where a row's bytes are stored.

``path`` alone means the whole file; ``member`` selects a tar member, ``byte_offset`` and ``byte_size`` a byte range
(the fastest), ``frame_index`` one frame of a multi-frame TIFF. ``part`` is a text that only the format of the file can
read, such as the place of a record or a cell.
"""

import json
import os
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_INTEGER_FIELDS = ("byte_offset", "byte_size", "frame_index")


class SourceRef(NamedTuple):
    """The location of one row's bytes; offsets and sizes in bytes, frames counted from 0.

    Fields are attributes, readable by name as in a mapping: ``ref["path"]``, ``ref.get("member")``, ``dict(ref)``.
    """

    path: str | None = None
    member: str | None = None
    byte_offset: int | None = None
    byte_size: int | None = None
    frame_index: int | None = None
    part: str | None = None

    def __getitem__(self, key: Any) -> Any:
        """Return the field with that name or index.

        Raises:
            KeyError: no field has that name.
        """
        if not isinstance(key, str):
            return tuple.__getitem__(self, key)
        if key not in self._fields:
            raise KeyError(key)
        return getattr(self, key)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return self._fields

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field ``name``, which may be None; ``default`` if no field has that name."""
        return getattr(self, name) if name in self._fields else default


def build_source_ref(
    path: str | os.PathLike[str] | None,
    member: str | None = None,
    byte_offset: int | None = None,
    byte_size: int | None = None,
    frame_index: int | None = None,
    part: str | None = None,
) -> str:
    """Return the locator as JSON text; without ``frame_index`` and ``part`` if they are None."""
    ref: dict[str, str | int | None] = {
        "path": None if path is None else os.fspath(path),
        "member": member,
        # an integer of NumPy, as a DataFrame gives it, has no place in JSON
        "byte_offset": None if byte_offset is None else index(byte_offset),
        "byte_size": None if byte_size is None else index(byte_size),
    }
    if frame_index is not None:
        ref["frame_index"] = index(frame_index)
    if part is not None:
        ref["part"] = part
    return json.dumps(ref, ensure_ascii=False)


def parse_source_ref(value: str | None) -> SourceRef:
    """Read a locator; a null or empty value is a :class:`SourceRef` without a path.

    Raises:
        ValueError: the text is not a JSON object, or a field has a wrong type or a negative value.
    """
    if not value:
        return SourceRef()
    try:
        parsed = json.loads(value)
    except RecursionError as error:
        raise ValueError("source_ref is nested too deeply") from error
    except TypeError as error:
        raise ValueError(f"source_ref must be JSON text, got {value!r}") from error
    if not isinstance(parsed, dict):
        raise ValueError(f"source_ref must be a JSON object, got {value[:80]!r}")
    for name in ("path", "member", "part"):
        text = parsed.get(name)
        if not isinstance(text, str | None):
            raise ValueError(f"source_ref field {name!r} must be a string or null, got {text!r}")
        if text is not None and not is_unicode(text):
            raise ValueError(f"source_ref field {name!r} has half of a surrogate pair: {text!r}")
    for name in _INTEGER_FIELDS:
        number = parsed.get(name)
        if number is not None and (type(number) is not int or not 0 <= number < 2**63):
            raise ValueError(
                f"source_ref field {name!r} must be a whole number from 0 to 2**63 - 1 or null, got {number!r}"
            )
    return SourceRef(*(parsed.get(name) for name in SourceRef._fields))


def with_json_locators(table: pa.Table) -> pa.Table:
    """Return ``table`` with a column ``source_ref`` of JSON if it is a struct of the fields of :class:`SourceRef`.

    A struct without a path, or a null one, becomes null. Fields of other names are left out.
    """
    at = table.schema.get_field_index("source_ref")
    if at < 0 or not pa.types.is_struct(table.schema.field(at).type):
        return table
    refs = [
        None if ref is None or ref.get("path") is None
        else build_source_ref(*(ref.get(name) for name in SourceRef._fields))
        for ref in table["source_ref"].to_pylist()
    ]  # fmt: skip
    return table.set_column(at, "source_ref", pa.array(refs, pa.string()))


def is_unicode(text: str) -> bool:
    """Return whether ``text`` can be UTF-8; half a surrogate pair, which JSON can spell, cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def source_ref_array(
    path: str,
    members: Sequence[str | None] | pa.Array,
    byte_offsets: Sequence[int | None] | pa.Array,
    byte_sizes: Sequence[int | None] | pa.Array,
    frame_indices: Sequence[int | None] | pa.Array | None = None,
) -> pa.Array:
    """Return the locators of rows of one file, as a string array; byte for byte those of :func:`build_source_ref`.

    A row whose member is null gets a null locator.
    """
    members = pa.array(members, pa.string())
    # all text rows of a document have the same member, so each distinct name is quoted once
    encoded = pc.dictionary_encode(members)
    quoted = pa.array([json.dumps(name, ensure_ascii=False) for name in encoded.dictionary.to_pylist()], pa.string())
    null = pa.scalar("null", pa.string())

    def number(values: Sequence[int | None] | pa.Array) -> pa.Array:
        return pc.fill_null(pc.cast(pa.array(values, pa.int64()), pa.string()), null)

    # a null in any argument makes the element null, so a null member gives a null locator
    head = pa.scalar(f'{{"path": {json.dumps(path, ensure_ascii=False)}, "member": ', pa.string())
    parts: list[pa.Array | pa.Scalar] = [head, pc.take(quoted, encoded.indices), pa.scalar(', "byte_offset": ')]
    parts += [number(byte_offsets), pa.scalar(', "byte_size": '), number(byte_sizes)]
    if frame_indices is not None:
        frames = pc.cast(pa.array(frame_indices, pa.int64()), pa.string())
        parts.append(pc.fill_null(pc.binary_join_element_wise(pa.scalar(', "frame_index": '), frames, ""), ""))
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")
