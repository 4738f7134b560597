"""Groups of the members of a tar as WebDataset forms them: names that are equal up to the first dot are one sample."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from interleaved_assets.io.archive.source import TarSource
from interleaved_assets.io.tar.layout import TEXT_EXTENSION, ShardLayout, webdataset_key
from interleaved_assets.io.tar.references import plain_name

_SEEN: Final = 10
_SEEN_BYTES: Final = 2**22


@dataclass
class MemberGroup:
    """Numbers of the members of one sample.

    Attributes:
        key: the common part of their names.
        number: number of the first one.
        json: number of its JSON; None without one.
        images, texts: numbers in the order of the tar.
    """

    key: str
    number: int
    json: int | None = None
    images: list[int] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)


def detected_layout(source: TarSource, layout: ShardLayout) -> ShardLayout:
    """Return the layout of a tar: ``images`` if images have names of their own and no JSON beside them has lists.

    The first :data:`_SEEN` JSON members that can be parsed tell. A tar that shows neither, such as MMC4's, is taken for
    ``interleaved``, and fails as one.
    """
    groups = find_groups([plain_name(member.name) for member in source.index.members], replace(layout, layout="images"))
    jsons = [group.json for group in groups if group.json is not None]
    told = [*islice((has for number in jsons if (has := _has_list(source, number)) is not None), _SEEN)]
    is_images = any(group.images for group in groups) and not any(told) and bool(told or not jsons)
    return replace(layout, layout="images" if is_images else "interleaved")


def _has_list(source: TarSource, number: int) -> bool | None:
    """Return whether a JSON has a list with a text or an object, or is no object at all; None if it is damaged."""
    member = source.index.members[number]
    if member.size > _SEEN_BYTES:
        return True
    try:
        body = json.loads(bytes(source.range(member.offset, member.size)))
    except (ValueError, RecursionError):
        return None
    lists = (value for value in body.values() if isinstance(value, list)) if isinstance(body, dict) else iter([[""]])
    return any(isinstance(entry, str | dict) for value in lists for entry in value)


def find_groups(names: Sequence[str], layout: ShardLayout) -> list[MemberGroup]:
    """Return the samples of a tar in the layout ``images``, in the order of their first members.

    The members of a sample need not be adjacent. A repeated name begins another sample with the same key. Members that
    are neither image nor text nor ``<key>.json`` are in no group, and begin none.
    """
    found: list[MemberGroup] = []
    open_groups: dict[str, MemberGroup] = {}
    taken: dict[str, set[str]] = {}
    for number, name in enumerate(names):
        key = webdataset_key(name)
        ending = name[len(key) :].lower()
        is_json = ending in layout.json_extensions
        is_image = ending.endswith(tuple(layout.image_extensions))
        if not (is_json or is_image or ending.endswith(TEXT_EXTENSION)):
            continue
        if key not in open_groups or name in taken[key]:
            open_groups[key] = MemberGroup(key, number)
            taken[key] = set()
            found.append(open_groups[key])
        taken[key].add(name)
        group = open_groups[key]
        if is_json and group.json is None:
            group.json = number
        elif not is_json:
            (group.images if is_image else group.texts).append(number)
    return found
