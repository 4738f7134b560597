"""Resolution of the image tokens of documents: to members of the tar, or to frames of a TIFF among them."""

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from interleaved_assets.io.archive.index import TarMember, shortened
from interleaved_assets.io.archive.source import TarSource
from interleaved_assets.io.rows.resolve import Container, container_of
from interleaved_assets.io.tar.documents import Document
from interleaved_assets.io.tar.json_columns import json_text
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tiff.frames import TiffFrame
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.source_ref import is_unicode

# MINT-1T's tokens for the images of a PDF; the images are the frames of its TIFF in the order of the tokens
_FRAME_TOKEN: Final = re.compile(r"page_\d+_image_\d+")
_CONTAINERS: Final = (".tiff", ".tif", ".TIFF", ".TIF", ".Tiff", ".Tif")

# bsdtar of macOS stores the extended attributes of a file as a file with this prefix, in the format AppleDouble
_ATTRIBUTES: Final = "._"
_APPLE_DOUBLE: Final = b"\0\5\x16\7"


class ImageRef(NamedTuple):
    """The target of an image token: a member or a frame of one, with its error as a row error.

    ``name`` is the member's, or the token itself if it has no target. ``member`` is None without a target, and if its
    bytes cannot be read. ``size`` is the number of bytes that the row takes for it. ``content_type`` is its type if its
    name says another. ``tiff`` is the parsed frame, if it is kept.
    """

    name: str | None
    member: TarMember | None = None
    frame: int | None = None
    error: str | None = None
    size: int = 0
    content_type: str | None = None
    tiff: TiffFrame | None = None


class Leftover(NamedTuple):
    """A member, or a frame of one, that no token refers to.

    ``number`` is the member's in the tar, ``size`` in bytes.
    """

    number: int
    name: str
    member: TarMember
    size: int
    frame: int | None = None


class References:
    """The members of a tar by name, with the ones that tokens refer to so far.

    A repeated name refers to its last member, as in ``tar`` itself. But if the documents that may name it are as many
    as its members, each document means its own.

    Attributes:
        names: names of all members, without a leading ``./``.
        notes: counts of irregularities that are no row's error, by kind.
    """

    def __init__(self, source: TarSource, layout: ShardLayout, max_member_bytes: int, kept_tags: int) -> None:
        self._source, self._layout, self._limit = source, layout, max_member_bytes
        self._members = source.index.members
        self.names = [plain_name(member.name) for member in self._members]
        self._places: dict[str, list[int]] = defaultdict(list)
        self._ordinals: list[int] = []  # for each member, its number among those of its name
        for number, name in enumerate(self.names):
            places = self._places[name]
            self._ordinals.append(len(places))
            places.append(number)
        self._referenced: set[int] = set()
        self._used_frames: Counter[int] = Counter()
        # without tags of frames once those of others have used up kept_tags; None if the bytes would have to be fetched
        self._containers: dict[int, Container | None] = {}
        self._tags_left = kept_tags
        self.notes: Counter[str] = Counter()
        self.notes["repeated_members"] += len(self.names) - len(self._places)

    def resolve(self, document: Document, json_number: int, key: str) -> list[ImageRef]:
        """Return the target of each image token of ``document``; its nulls are left out."""
        tokens = [token for token in document.images if token is not None]
        names = [token if isinstance(token, str) and is_unicode(token) else None for token in tokens]
        places = [None if name is None else self._find(name, json_number) for name in names]
        times = Counter(places)
        are_frames = [name is not None and self._is_frame_token(name, document) for name in names]
        framed = sum(is_frame and place is None for is_frame, place in zip(are_frames, places, strict=True))
        container = self._container(document, json_number, key) if framed else None
        certain = None if container is None else self._certain_frames(container, framed)
        frames: Counter[int] = Counter()  # for each container, the number of its frames that tokens refer to
        by_name: dict[str, int] = {}  # the frame of the container that each token means
        refs = []
        for token, place, is_frame, size in zip(tokens, places, are_frames, document.sizes, strict=True):
            number = container if place is None and is_frame else place
            if number is not None:
                self._referenced.add(number)
                if place is None or self._is_repeated_container(
                    number, times[number], is_container=number == container
                ):
                    index = frames[number]
                    # a document that names its container may call all of its images the same
                    if place is None and certain is not None and document.container is None:
                        index = by_name.setdefault(token, index)
                    refs.append(self._frame(number, index, size, None if place is not None else certain))
                    frames[number] = max(frames[number], index + 1)
                else:
                    refs.append(self._member(number))
            elif is_frame:
                refs.append(self._missing(token, document, key))
            elif isinstance(token, str) and is_unicode(token):
                detail = f"{shortened(token) or 'a token without a name'} is not in the tar"
                refs.append(ImageRef(token, error=row_error("missing_member", detail)))
            else:
                detail = f"{json_text(token)} is no name of a member or a frame"
                refs.append(ImageRef(None, error=row_error("invalid_token", detail)))
            if certain is not None and container is not None and number is None and self._may_be_frame(token):
                certain = min(certain, frames[container])
        for number, used in frames.items():
            self._used_frames[number] = max(self._used_frames[number], used)
        return refs

    def take(self, number: int) -> ImageRef:
        """Return member ``number`` as an image or another part of a sample; it no longer counts as a leftover."""
        self._referenced.add(number)
        return self._member(number)

    def leftovers(self) -> Iterator[Leftover]:
        """Yield the members that are not documents and that no token refers to, in order.

        The frames after the last one that a token refers to are included.
        """
        for number, (name, member) in enumerate(zip(self.names, self._members, strict=True)):
            if number in self._used_frames:
                yield from self._unused_frames(number, name, member)
            elif number not in self._referenced and not self.is_document(number):
                yield Leftover(number, name, member, member.size)

    def _unused_frames(self, number: int, name: str, member: TarMember) -> Iterator[Leftover]:
        # a container that is cut, too large or not a TIFF is an error of the rows that need it
        container = self._containers.get(number, Container())
        if container is None:
            self.notes["unchecked_frames"] += 1
            return
        for frame, found in enumerate(container.frames):
            if frame >= self._used_frames[number] and found.error is None:
                yield Leftover(number, f"{name}#frame={frame}", member, found.size, frame)
            elif frame >= self._used_frames[number]:
                self.notes["damaged_frames"] += 1

    def is_document(self, number: int) -> bool:
        """Return whether a member is a JSON that lists texts and images."""
        if self._layout.layout != "interleaved" or self._is_attributes(number):
            return False
        return self.names[number].lower().endswith(tuple(self._layout.json_extensions))

    def described(self, number: int) -> str:
        """Return the name of the file that a member belongs to: its own.

        For attributes that macOS packs beside a file, it is that file's name.
        """
        name = self.names[number]
        folder, slash, base = name.rpartition("/")
        return folder + slash + base.removeprefix(_ATTRIBUTES) if self._is_attributes(number) else name

    def _is_attributes(self, number: int) -> bool:
        """Return whether a member has the attributes that macOS packs beside a file: ``._a.json`` for ``a.json``."""
        if not self.names[number].rpartition("/")[2].startswith(_ATTRIBUTES):
            return False
        return bytes(self._source.range(self._members[number].offset, len(_APPLE_DOUBLE))) == _APPLE_DOUBLE

    def error_of(self, member: TarMember) -> str | None:
        """Return why the bytes of ``member`` cannot be read, as a row error; None if they can."""
        if self._source.is_cut(member):
            return row_error("truncated_shard", self._source.index.damage or "")
        if member.size > self._limit:
            return row_error("member_too_large", f"{shortened(member.name)}: {member.size} bytes, over {self._limit}")
        return None

    def _find(self, name: str, json_number: int) -> int | None:
        """Return the member of that name, or of that name in the folder of the document."""
        folder = self.names[json_number].rpartition("/")[0]
        own = len(self._places[self.names[json_number]])
        beside = f"{folder}/{plain_name(name)}" if folder else name
        for candidate in (name, posixpath.normpath(beside) if "../" in beside else beside):
            places = self._places.get(plain_name(candidate))
            if places:
                return places[self._ordinals[json_number]] if len(places) == own else places[-1]
        return None

    def _member(self, number: int) -> ImageRef:
        member = self._members[number]
        error = self.error_of(member)
        return ImageRef(member.name, error=error) if error else ImageRef(member.name, member, size=member.size)

    def _is_frame_token(self, token: str, document: Document) -> bool:
        if document.container is None:
            return _FRAME_TOKEN.fullmatch(token) is not None
        return not token.lower().endswith(tuple(self._layout.image_extensions))

    def _container(self, document: Document, json_number: int, key: str) -> int | None:
        if document.container is not None:
            return self._find(document.container, json_number)
        stems = dict.fromkeys([key, *filter(None, [document.own_id])])
        found = (self._find(stem + extension, json_number) for stem in stems for extension in _CONTAINERS)
        return next((number for number in found if number is not None), None)

    def _is_repeated_container(self, number: int, times: int, *, is_container: bool) -> bool:
        """Return whether tokens that name a member mean its frames.

        They do if it is a TIFF with several frames that is named by several tokens, or by one and as the container.
        """
        if times + is_container < 2 or not self.names[number].endswith(_CONTAINERS):
            return False
        if self.error_of(self._members[number]) is not None:
            return False
        found = self._opened(number, is_needed=True)
        return found is not None and len(found.frames) > 1

    def _certain_frames(self, number: int, tokens: int) -> int | None:
        """Return how many frames of a container come before its first smaller copy of another frame.

        None says that every frame is certain: each has its token, or the frames are not known.
        """
        container = None if self.error_of(self._members[number]) else self._opened(number)
        if container is None or len(container.frames) in (0, tokens):
            return None
        copies = [frame.is_reduced for frame in container.frames]
        return copies.index(True) if any(copies) and not all(copies) else len(copies)

    def _may_be_frame(self, token: Any) -> bool:
        """Return whether a token that leads nowhere may mean a frame, under a name that is not known."""
        return not isinstance(token, str) or bool(
            token.strip() and not token.lower().endswith(tuple(self._layout.image_extensions))
        )

    def _missing(self, token: str, document: Document, key: str) -> ImageRef:
        container = document.container or f"{key}{_CONTAINERS[0]}"
        if document.container is None and document.own_id not in (None, key):
            container = f"{shortened(container)} or {shortened(str(document.own_id))}{_CONTAINERS[0]}"
        detail = f"{shortened(token)} needs {shortened(container)}, which is not in the tar"
        return ImageRef(token, error=row_error("missing_member", detail))

    def _frame(self, number: int, index: int, size: tuple[int, int] | None, certain: int | None = None) -> ImageRef:
        """Return frame ``index`` of a member, which should have ``size``, and be among the first ``certain`` ones."""
        member = self._members[number]
        if (error := self.error_of(member)) is not None:
            return ImageRef(member.name, frame=index, error=error)
        container, name = self._opened(number), shortened(member.name)
        if container is None:
            return ImageRef(member.name, member, index, size=member.size)
        frames, other = container.frames, container.other_type
        if other is not None:
            if index == 0:
                return ImageRef(member.name, member, size=member.size, content_type=other)
            detail = f"frame {index} of {name}, which is {other} and no TIFF: its one image is frame 0"
            error = row_error("frame_out_of_range", detail)
        elif container.problem:
            error = row_error("invalid_tiff", f"{name}: {container.problem}")
        elif index >= len(frames):
            error = row_error("frame_out_of_range", f"frame {index} of {name}, which has {len(frames)}")
        elif (found := frames[index]).error is not None:
            error = row_error("invalid_tiff", f"frame {index} of {name}: {found.error}")
        elif size is not None and size != (found.width, found.height):
            sizes = f"{found.width} × {found.height}, image_metadata says {size[0]} × {size[1]}"
            # the frame is kept, so that its row shows which image it is
            error = row_error("frame_mismatch", f"frame {index} of {name} is {sizes}")
            return ImageRef(member.name, member, index, error, found.size, tiff=_kept(found))
        elif certain is not None and index >= certain:
            reason = "a smaller copy of a frame, or a token that leads nowhere, comes before it"
            error = row_error("frame_mismatch", f"frame {index} of {name}, which has {len(frames)}: {reason}")
            return ImageRef(member.name, member, index, error, found.size, tiff=_kept(found))
        else:
            return ImageRef(member.name, member, index, size=found.size, tiff=_kept(found))
        return ImageRef(member.name, frame=index, error=error)

    def _opened(self, number: int, *, is_needed: bool = False) -> Container | None:
        """Return the frames of a member; ``is_needed`` fetches its bytes if necessary."""
        if self._containers.get(number) is None and (is_needed or self._source.is_on_disk):
            found = container_of(self._source.content(self._members[number]))
            self._tags_left -= sum(len(frame.entries) for frame in found.frames)
            if self._tags_left < 0:
                found = found._replace(frames=[frame._replace(entries={}) for frame in found.frames])
            self._containers[number] = found
        return self._containers.setdefault(number, None)


def _kept(frame: TiffFrame) -> TiffFrame | None:
    return frame if frame.entries else None


def plain_name(name: str) -> str:
    """Return a member's name as in tokens and ids: without the ``./`` that ``tar -c .`` puts before it."""
    start = 0
    while name.startswith("./", start) and len(name) > start + 2:
        start += 2
    return name[start:]
