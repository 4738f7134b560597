"""Groups of equal elements within a document, such as repeated lines or runs of words."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interleaved_assets.scoring.texts.hashes import Hashes, Places, mixed, owned

_SIZE_BITS = 32
"""Bits for the size of a group, which is below the number of characters of a batch."""


class Repeats(NamedTuple):
    """The elements that occur more than once in their owner, group by group of equal ones, each in ascending order."""

    places: Places
    """The element's place among all elements."""
    group: Places
    """The number of its group."""
    sizes: Places
    """Number of elements of each group."""
    owners: Places
    """The owner of each group."""
    firsts: Places
    """The place of the first element of each group."""

    def later(self) -> Places:
        """Return the places of all elements but the first of each group."""
        is_later = np.ones(len(self.places), dtype=bool)
        is_later[np.cumsum(self.sizes) - self.sizes] = False
        return self.places[is_later]


def find_repeats(identities: Hashes, owners: Places, among: Places | None = None) -> Repeats:
    """Return the elements with the identity of another element of the same owner.

    ``among`` are the places of the elements; by default ``identities`` and ``owners`` are those of all elements.
    """
    order, follows = sorted_equals(owned(identities, owners))
    repeated = follows.copy()
    repeated[:-1] |= follows[1:]
    elements, begins = order[repeated], ~follows[repeated]
    places = elements if among is None else among[elements]
    starts = np.flatnonzero(begins)
    return Repeats(
        places,
        np.cumsum(begins) - 1,
        np.diff(starts, append=len(places)),
        owners[elements[starts]],
        places[starts],
    )


def sorted_equals(keys: Hashes) -> tuple[Places, NDArray[np.bool_]]:
    """Return the places of the keys in a stable order, and which of them have the key of the one before.

    The first bits of a key and its place are sorted as one number, which is ten times as fast as a stable sort of
    places. Where two keys differ in their last bits alone, which is rare, the keys are sorted so.
    """
    bits = np.uint64(max(len(keys).bit_length(), 1))
    packed = keys >> bits
    packed <<= bits
    packed |= np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    packed >>= bits
    follows = np.zeros(len(keys), dtype=bool)
    np.equal(packed[1:], packed[:-1], out=follows[1:])
    later = np.flatnonzero(follows)
    if not np.array_equal(keys[order[later]], keys[order[later - 1]]):
        order = np.argsort(keys, kind="stable")
        follows[1:] = keys[order[1:]] == keys[order[:-1]]
    return order, follows


def most_frequent(repeats: Repeats, owners: int, default: Places) -> tuple[Places, Places]:
    """Return for each owner the first place and the number of its most frequent element.

    Of equally frequent elements the first counts, as it does for ``Counter.most_common``. ``default`` has the first
    element of each owner, for those in which none is repeated.
    """
    place, count = default.copy(), np.ones(owners, dtype=np.int64)
    # the last assignment counts: the largest group, and of those the one that begins first
    order = np.lexsort((-repeats.firsts, repeats.sizes))
    place[repeats.owners[order]] = repeats.firsts[order]
    count[repeats.owners[order]] = repeats.sizes[order]
    return place, count


class Groups(NamedTuple):
    """Groups of equal elements of an owner: the owner of each, and its size."""

    owners: Places
    sizes: Places


def repeated_groups(identities: Hashes, owners: Places, parts: Places, counts: Places) -> tuple[Groups, Groups]:
    """Return the groups of equal elements within an owner, and those within a part of an owner.

    One sort finds both. This is faster than :func:`find_repeats`, and does not tell where the elements are.

    Args:
        owners, parts: owner and part of runs of elements that have the same; ``counts`` has the elements of each run. A
            part is numbered within its owner from 1 on; 0 is no part.

    Returns:
        The owners of the second groups are owner and part, in the upper and lower 32 bits.
    """
    high = np.uint64(64 - max(_bits(owners), 1))
    low = np.uint64(max(_bits(parts), 1))
    keys = mixed(identities)
    keys >>= np.uint64(64) - high + low
    keys <<= low
    keys |= np.repeat((owners.astype(np.uint64) << high) | parts.astype(np.uint64), counts)
    keys.sort()
    of_parts = _groups(np.flatnonzero(keys[1:] == keys[:-1]))
    first = keys[of_parts.owners]
    part = first & ((np.uint64(1) << low) - np.uint64(1))
    in_part = part > 0
    owner = (((first >> high) << np.uint64(_SIZE_BITS)) | part)[in_part]
    keys >>= low
    of_owners = _groups(np.flatnonzero(keys[1:] == keys[:-1]))
    whole = keys[of_owners.owners] >> (high - low)
    return (
        Groups(whole.astype(np.int64), of_owners.sizes),
        Groups(owner.astype(np.int64), of_parts.sizes[in_part]),
    )


def _groups(follows: Places) -> Groups:
    """Return the first place and the size of each run of elements that equal the one after them."""
    begins = np.flatnonzero(np.diff(follows, prepend=-2) > 1)
    return Groups(follows[begins], np.diff(begins, append=len(follows)) + 1)


def _bits(numbers: Places) -> int:
    """Return the bits of the largest of some numbers."""
    return int(numbers.max()).bit_length() if len(numbers) else 0


def sum_of_largest(groups: Groups, most: Places) -> Places:
    """Return for each owner the number of elements in its ``most`` largest groups."""
    # an owner's groups together, the largest first
    keys = (groups.owners << _SIZE_BITS) + (2**_SIZE_BITS - 1 - groups.sizes)
    keys.sort()
    owners = keys >> _SIZE_BITS
    rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
    taken = rank < most[owners]
    largest = 2**_SIZE_BITS - 1 - (keys[taken] & (2**_SIZE_BITS - 1))
    return np.bincount(owners[taken], weights=largest, minlength=len(most)).astype(np.int64)


def skipping_duplicates(repeats: Repeats, length: int) -> NDArray[np.int64]:
    """Return the places of runs of words that are duplicates, as Gopher counts them.

    A run of ``length`` words is a duplicate if an equal run came before. The next run then begins after it, so that no
    word counts twice. Only runs that occur more than once are visited.
    """
    order = np.argsort(repeats.places, kind="stable")
    places, groups = repeats.places[order], repeats.group[order]
    seen = np.zeros(len(repeats.sizes), dtype=bool)
    found: list[int] = []
    free = -1
    for place, group in zip(places.tolist(), groups.tolist(), strict=True):
        if place < free:
            continue
        if seen[group]:
            found.append(place)
            free = place + length
        else:
            seen[group] = True
    return np.array(found, dtype=np.int64)
