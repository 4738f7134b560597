"""Names in the tar form: fields of a document's JSON, columns of the row model, members of the tar."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args
from urllib.parse import quote

from interleaved_assets.io.rows.content_types import IMAGE_EXTENSIONS
from interleaved_assets.io.storage import dotted
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.errors import OptionError

ID_COLUMN: Final = "sample_id_"
"""Passthrough column of a JSON field ``sample_id`` that differs from the sample's id."""
NULL_FIELDS: Final = "_null_fields"
"""Passthrough column with the names of the columns whose JSON field is an explicit null."""
EMPTY_LISTS: Final = "_empty_lists"
"""Passthrough column with the lists that have no value to spread, as ``image:<column>`` or ``text:<column>``."""
LIST_LENGTH: Final = "_list_length"
"""Passthrough column with the length of a document's lists, if they end in nulls without a row."""
UNREFERENCED_MEMBERS: Final = "_unreferenced_members"
"""Passthrough column with the members of a sample that its document does not name."""
EXACT_FIELD: Final = "_interleaved"
"""JSON field that holds what plain JSON cannot express (see ``exact.py``)."""

COMPRESSED_ENDINGS: Final = (".tar.gz", ".tgz")
"""Endings of the names of compressed tars."""
TAR_ENDINGS: Final = (".tar", *COMPRESSED_ENDINGS)
"""Endings of the names of tars."""

Layout = Literal["interleaved", "images", "detected"]
"""The forms of a sample in a tar: a JSON that lists its texts and images, or a group of members as in WebDataset; or
the one of these two that the members of each tar show."""

TEXT_EXTENSION: Final = ".txt"
"""Extension of the members that are texts, in the layout ``images``."""

_TAKEN: Final = RESERVED_COLUMNS | {NULL_FIELDS, EMPTY_LISTS, LIST_LENGTH, UNREFERENCED_MEMBERS, EXACT_FIELD}
_ESCAPED: Final = re.compile(f"(?:{'|'.join(sorted(_TAKEN))})_*")


@dataclass(frozen=True)
class ShardLayout:
    """The layout of a document: the names of its parts in its JSON and its tar.

    In the layout ``images``, members whose names are the same up to the first dot are one sample. Its images are at the
    positions from 0, then its texts (``.txt``), each in the order of the tar. The fields of ``<key>.json`` become
    columns. The options of this layout are ``sample_id_field``, ``fields``, ``image_extensions`` and
    ``json_extensions``.

    Attributes:
        sample_id_field: JSON field with the document's id. If it is None, or a document lacks the field, the id is the
            path of its JSON member without the extension.
        texts_field: list of texts; the index is the position.
        images_field: list of image tokens, parallel to the texts.
        image_member_field: JSON field that names the member whose frames the tokens name. None: ``<key>.tiff``.
        fields: passthrough columns to keep; one that no document has is filled with nulls, with a warning. None keeps
            all. ``per_image_fields`` and ``per_text_fields`` are kept too, but ``image_metadata`` has to be named.
        per_image_fields: lists with one entry per image, spread over the image rows.
        per_text_fields: lists with one entry per text, spread over the text rows.
        image_extensions: a token with one of these endings names a member, and never a frame; with or without a dot.
        json_extensions: endings of members that are documents; with or without a dot.
        layout: ``interleaved``, documents with lists of texts and images, ``images``, or ``detected``: each tar has one
            of these two.
    """

    sample_id_field: str | None = None
    texts_field: str = "texts"
    images_field: str = "images"
    image_member_field: str | None = None
    fields: Sequence[str] | None = None
    per_image_fields: Sequence[str] = ("image_metadata",)
    per_text_fields: Sequence[str] = ()
    image_extensions: Sequence[str] = IMAGE_EXTENSIONS
    json_extensions: Sequence[str] = (".json",)
    layout: Layout = "interleaved"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: an option is invalid.
        """
        if self.layout not in get_args(Layout):
            raise OptionError(f"layout must be one of {', '.join(get_args(Layout))}, got {self.layout!r}")
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name.endswith(("fields", "extensions")):
                if isinstance(value, str):
                    raise OptionError(f"{option.name} is a list of names, not one string, got {value!r}")
                if value is not None:
                    object.__setattr__(self, option.name, tuple(value))
        if self.texts_field == self.images_field:
            raise OptionError(f"texts_field and images_field must differ, both are {self.texts_field!r}")
        if twice := set(self.per_image_fields) & set(self.per_text_fields):
            raise OptionError(f"{', '.join(sorted(twice))} cannot be both per image and per text")
        for name in ("image_extensions", "json_extensions"):
            object.__setattr__(self, name, dotted(getattr(self, name), name))
        if not self.json_extensions:
            raise OptionError("json_extensions is empty: no member would be a document")
        if reserved := sorted(RESERVED_COLUMNS.intersection(self.fields or ())):
            raise OptionError(
                f"fields names passthrough columns; {', '.join(reserved)} are reserved, and always there. "
                f"A JSON field of such a name has an underscore behind it as a column: {column_name(reserved[0])!r}."
            )
        if self.fields is not None:
            object.__setattr__(self, "fields", tuple(dict.fromkeys((*self.fields, *self._spread_columns()))))

    def _spread_columns(self) -> tuple[str, ...]:
        """Return the columns of the lists to spread, except ``image_metadata``, which is an option's default."""
        names = (*self.per_image_fields, *self.per_text_fields)
        return tuple(column_name(name) for name in names if name != "image_metadata")

    def named_columns(self) -> set[str]:
        """Return the passthrough columns that the options name, each of which some document should have.

        The columns that this package adds itself do not count.
        """
        return {*(self.fields or ()), *self._spread_columns()} - _TAKEN


def column_name(field: str) -> str:
    """Return the passthrough column for a JSON field.

    It is the field's own name. Names of columns of the row model get an underscore at the end; so do names that look
    like one with such an underscore, so that no two fields share a column.
    """
    return f"{field}_" if _ESCAPED.fullmatch(field) else field


def json_field(column: str) -> str | None:
    """Return the JSON field that :func:`column_name` turns into ``column``; None if no field does."""
    if column in _TAKEN:
        return None
    return column[:-1] if _ESCAPED.fullmatch(column) else column


def member_key(sample_id: str) -> str:
    """Return the part before the first dot of all member names of a sample; different for different ids.

    Dots are percent-encoded too, since WebDataset takes ``a`` for the key of ``a.b.json``. An empty id becomes ``%``,
    which encoding never gives.
    """
    return quote(sample_id, safe="").replace(".", "%2E") or "%"


def split_extension(name: str) -> tuple[str, str]:
    """Return ``name`` before its last dot, and the rest with the dot; the dot of a hidden file does not count."""
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.rpartition(".")
    return (folder + slash + stem, dot + extension) if stem else (name, "")


def webdataset_key(name: str) -> str:
    """Return the key by which WebDataset groups members: the path up to the first dot of the file's name."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + (base.partition(".")[0] or base)
