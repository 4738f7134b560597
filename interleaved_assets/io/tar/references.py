"""What the image tokens of documents lead to: members of the tar, or frames of a TIFF among them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from interleaved_assets.io.tar.documents import Document
from interleaved_assets.io.tar.index import TarMember
from interleaved_assets.io.tar.json_columns import is_unicode, json_text
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.source import TarSource
from interleaved_assets.io.tiff.frames import tiff_frames
from interleaved_assets.model.errors import row_error

# MINT-1T's tokens for the images of a PDF; the images are the frames of its TIFF in the order of the tokens
_FRAME_TOKEN: Final = re.compile(r"page_\d+_image_\d+")
_CONTAINERS: Final = (".tiff", ".tif", ".TIFF", ".TIF")


class ImageRef(NamedTuple):
    """What an image token leads to: a member or a frame of one, and what is wrong with it as a row error.

    ``name`` is the member's, or the token itself where it leads nowhere; ``member`` is None then, and where its bytes
    cannot be had.
    """

    name: str | None
    member: TarMember | None = None
    frame: int | None = None
    error: str | None = None


class Leftover(NamedTuple):
    """A member, or a frame of one, that no token leads to; ``number`` is the member's in the tar."""

    number: int
    name: str
    member: TarMember
    frame: int | None = None


class _Frame(NamedTuple):
    """What is kept of a frame of a TIFF."""

    width: int
    height: int
    error: str | None


class References:
    """The members of a tar by name, and which of them tokens have led to so far.

    A name that is in the tar more than once stands for its last member, as in ``tar`` itself; but where the documents
    that may name it are as many, each means its own.

    Attributes:
        names: of all members, without a ``./`` in front.
        notes: what was noticed and is no row's error, counted by kind.
    """

    def __init__(self, source: TarSource, layout: ShardLayout, max_member_bytes: int) -> None:
        self._source, self._layout, self._limit = source, layout, max_member_bytes
        self._members = source.index.members
        self.names = [plain_name(member.name) for member in self._members]
        self._places: dict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(self.names):
            self._places[name].append(number)
        self._referenced: set[int] = set()
        self._used_frames: Counter[int] = Counter()
        self._frames: dict[int, list[_Frame] | str | None] = {}
        self.notes: Counter[str] = Counter()
        self.notes["repeated_members"] += len(self.names) - len(self._places)

    def resolve(self, document: Document, json_number: int, key: str) -> list[ImageRef]:
        """What each image token of ``document`` leads to; its nulls are left out.

        Args:
            document: as read from member ``json_number``.
            json_number: number of that member.
            key: its name without extension.
        """
        tokens = [token for token in document.images if token is not None]
        refs = []
        frames = 0
        container: int | None = None
        for token, size in zip(tokens, document.sizes, strict=True):
            if not isinstance(token, str) or not is_unicode(token):
                detail = f"{json_text(token)} is no name of a member or a frame"
                refs.append(ImageRef(None, error=row_error("invalid_token", detail)))
                continue
            number = self._find(token, json_number)
            if number is not None:
                self._referenced.add(number)
                refs.append(self._member(number))
            elif self._is_frame_token(token, document):
                if not frames:
                    container = self._container(document, json_number, key)
                if container is None:
                    refs.append(self._missing(token, document, key))
                else:
                    refs.append(self._frame(container, frames, size))
                frames += 1
            else:
                refs.append(ImageRef(token, error=row_error("missing_member", f"{token} is not in the tar")))
        if container is not None:
            self._referenced.add(container)
            self._used_frames[container] = max(self._used_frames[container], frames)
        return refs

    def leftovers(self) -> Iterator[Leftover]:
        """Members that are no documents and no token led to, and frames behind the last one used, in order."""
        for number, (name, member) in enumerate(zip(self.names, self._members, strict=True)):
            if number in self._used_frames:
                yield from self._unused_frames(number, name, member)
            elif number not in self._referenced and not self.is_document(number):
                yield Leftover(number, name, member)

    def _unused_frames(self, number: int, name: str, member: TarMember) -> Iterator[Leftover]:
        # a container that is cut, too large or no TIFF is an error of the rows that need it
        frames = self._frames.get(number, "")
        if frames is None:
            self.notes["unchecked_frames"] += 1
        elif not isinstance(frames, str):
            for frame in range(self._used_frames[number], len(frames)):
                if frames[frame].error is None:
                    yield Leftover(number, f"{name}#frame={frame}", member, frame)
                else:
                    self.notes["damaged_frames"] += 1

    def is_document(self, number: int) -> bool:
        """Whether a member is a JSON."""
        return self.names[number].lower().endswith(tuple(self._layout.json_extensions))

    def error_of(self, member: TarMember) -> str | None:
        """Why the bytes of ``member`` cannot be had, as a row error; None where they can."""
        if self._source.is_cut(member):
            return row_error("truncated_shard", self._source.index.damage or "")
        if member.size > self._limit:
            return row_error("member_too_large", f"{member.name}: {member.size} bytes, over {self._limit}")
        return None

    def _find(self, name: str, json_number: int) -> int | None:
        """The member of that name, or of that name in the folder of the document."""
        folder = self.names[json_number].rpartition("/")[0]
        own = self._places[self.names[json_number]]
        for candidate in (name, f"{folder}/{plain_name(name)}" if folder else name):
            places = self._places.get(plain_name(candidate))
            if places:
                return places[own.index(json_number)] if len(places) == len(own) else places[-1]
        return None

    def _member(self, number: int) -> ImageRef:
        member = self._members[number]
        error = self.error_of(member)
        return ImageRef(member.name, None if error else member, error=error)

    def _is_frame_token(self, token: str, document: Document) -> bool:
        if document.container is None:
            return _FRAME_TOKEN.fullmatch(token) is not None
        return not token.lower().endswith(tuple(self._layout.image_extensions))

    def _container(self, document: Document, json_number: int, key: str) -> int | None:
        if document.container is not None:
            return self._find(document.container, json_number)
        found = (self._find(key + extension, json_number) for extension in _CONTAINERS)
        return next((number for number in found if number is not None), None)

    def _missing(self, token: str, document: Document, key: str) -> ImageRef:
        container = document.container or f"{key}{_CONTAINERS[0]}"
        return ImageRef(token, error=row_error("missing_member", f"{token} needs {container}, which is not in the tar"))

    def _frame(self, number: int, index: int, size: tuple[int, int] | None) -> ImageRef:
        """Frame ``index`` of a member, which should have ``size``."""
        member = self._members[number]
        error = self.error_of(member)
        frames = None if error else self._frames_of(number)
        if error is None and frames is not None:
            if isinstance(frames, str):
                error = frames
            elif index >= len(frames):
                error = row_error("frame_out_of_range", f"frame {index} of {member.name}, which has {len(frames)}")
            elif frames[index].error is not None:
                error = row_error("invalid_tiff", f"frame {index} of {member.name}: {frames[index].error}")
            elif size is not None and size != (frames[index].width, frames[index].height):
                found = f"{frames[index].width} × {frames[index].height}"
                detail = f"frame {index} of {member.name} is {found}, image_metadata says {size[0]} × {size[1]}"
                # the frame is kept: whoever looks at the row can see which image it is
                return ImageRef(member.name, member, index, row_error("frame_mismatch", detail))
        return ImageRef(member.name, None if error else member, index, error)

    def _frames_of(self, number: int) -> list[_Frame] | str | None:
        """The frames of a member, or its row error; None where its bytes would have to be fetched to know."""
        if number not in self._frames:
            member = self._members[number]
            if not self._source.is_on_disk:
                self._frames[number] = None
            else:
                try:
                    frames = tiff_frames(self._source.content(member))
                    self._frames[number] = [_Frame(frame.width, frame.height, frame.error) for frame in frames]
                except ValueError as error:
                    self._frames[number] = row_error("invalid_tiff", f"{member.name}: {error}")
        return self._frames[number]


def plain_name(name: str) -> str:
    """A member's name as tokens and ids have it: without the ``./`` that ``tar -c .`` puts in front."""
    while name.startswith("./") and len(name) > 2:
        name = name[2:]
    return name
