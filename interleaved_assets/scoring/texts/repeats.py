"""Groups of equal elements within a document or a text, such as repeated lines or runs of words.

Elements are in the order of their owners: ``counts`` has the number of elements of each.
"""

from typing import Final, NamedTuple

import numpy as np

from interleaved_assets.scoring.texts.hashes import Hashes, Places, mixed

_SIZE_BITS: Final = 32
"""Bits for the size of a group, which is below the number of characters of a batch."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_PIECE: Final = 2**16
"""Elements that are grouped at once, if an owner has no more: their arrays stay in a processor's cache."""
_FEWEST: Final = 2
"""Elements of the smallest group."""


class Repeats(NamedTuple):
    """The elements that occur more than once in their owner."""

    places: Places
    """The element's place among all elements, in ascending order."""
    group: Places
    """The number of its group: the groups of an owner follow each other."""
    sizes: Places
    """Number of elements of each group."""
    owners: Places
    """The owner of each group."""


def find_repeats(identities: Hashes, counts: Places, among: Places | None = None) -> Repeats:
    """Return the elements with the identity of another element of the same owner.

    ``among`` are the places of the elements; by default ``identities`` and ``counts`` are those of all elements.
    """
    earlier, last = earlier_equals(identities, counts)
    repeated = np.zeros(len(identities), dtype=bool)
    repeated[last] = True
    lasts = np.flatnonzero(repeated)
    repeated[earlier] = True
    number = np.empty(len(identities), dtype=np.int64)
    number[lasts] = np.arange(len(lasts))
    number[earlier] = number[last]
    places = np.flatnonzero(repeated)
    group = number[places]
    owners = np.repeat(np.arange(len(counts)), np.diff(np.searchsorted(lasts, np.append(0, np.cumsum(counts)))))
    sizes = np.bincount(group, minlength=len(lasts))
    return Repeats(places if among is None else among[places], group, sizes, owners)


def earlier_equals(identities: Hashes, counts: Places) -> tuple[Places, Places]:
    """Return the elements that an equal one of the same owner follows, and the last of those equal to each.

    Both are places, the first in ascending order.
    """
    ends = np.cumsum(counts)
    earlier, lasts, owner, begin = [], [], 0, 0
    while begin < len(identities):
        # the owners that end within a piece, and at least one
        following = max(int(np.searchsorted(ends, begin + _PIECE, side="right")), owner + 1)
        end = int(ends[following - 1])
        last = _last_equals(identities[begin:end], counts[owner:following])
        places = np.flatnonzero(last != np.arange(len(last)))
        earlier.append(places + begin)
        lasts.append(last[places] + begin)
        owner, begin = following, end
    if len(earlier) == 1:
        return earlier[0], lasts[0]
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *earlier]), np.concatenate([nothing, *lasts])


def _last_equals(identities: Hashes, counts: Places) -> Places:
    """Return for each element the place of the last one of the same owner that equals it.

    This is a hash table of arrays, several times as fast as a sort. Each owner has slots of its own. In each round, a
    slot is taken by the last of the elements that belong there; those that equal it are done, and the others go to
    another slot in the next round.
    """
    bits = np.frexp(counts)[1] + 1  # twice as many slots as elements, or more
    slots = np.left_shift(1, bits)
    base, mask = np.repeat(np.cumsum(slots) - slots, counts), np.repeat(slots - 1, counts)
    table = np.empty(int(slots.sum()), dtype=np.int64)
    last = None
    left, wanted, keys = np.arange(len(identities)), identities, identities * _ODD
    while True:
        slot = (keys >> np.uint64(32)).view(np.int64)
        slot &= mask
        slot += base
        table[slot] = left  # of several, the last assignment to a slot counts
        found = table.take(slot, mode="wrap")  # faster than with a check of bounds, which hold
        other = np.flatnonzero(identities.take(found, mode="wrap") != wanted)
        if last is None:
            last = found
        else:
            last[left] = found
        if not len(other):
            return last
        left, wanted, base, mask = left[other], wanted[other], base[other], mask[other]
        keys = mixed(keys[other])


def most_frequent(repeats: Repeats, owners: int, default: Places) -> tuple[Places, Places]:
    """Return for each owner the first place and the number of its most frequent element.

    Of equally frequent elements the first counts, as it does for ``Counter.most_common``. ``default`` has the first
    element of each owner, for those in which none is repeated.
    """
    place, count = default.copy(), np.ones(owners, dtype=np.int64)
    if len(repeats.sizes):
        first = _first_of(repeats, repeats.places)
        begins = np.flatnonzero(np.diff(repeats.owners, prepend=-1))
        largest = np.maximum.reduceat((repeats.sizes << _SIZE_BITS) - first, begins)
        owner = repeats.owners[begins]
        place[owner], count[owner] = -largest & (2**_SIZE_BITS - 1), -(-largest >> _SIZE_BITS)
    return place, count


def sum_of_largest(owners: Places, sizes: Places, most: Places) -> Places:
    """Return for each owner the number of elements in its ``most`` largest groups; ``owners`` are ascending."""
    # most groups are of the smallest size, and need no sort
    large = sizes > _FEWEST
    keys = (owners[large] << _SIZE_BITS) + (2**_SIZE_BITS - 1 - sizes[large])
    keys.sort()
    owner = keys >> _SIZE_BITS
    counts = np.bincount(owner, minlength=len(most))
    rank = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    taken = rank < most[owner]
    largest = 2**_SIZE_BITS - 1 - (keys[taken] & (2**_SIZE_BITS - 1))
    found = np.bincount(owner[taken], weights=largest, minlength=len(most)).astype(np.int64)
    small = np.bincount(owners[~large], minlength=len(most))
    return found + _FEWEST * np.minimum(small, np.maximum(most - counts, 0))


def skipping_duplicates(repeats: Repeats, length: int) -> Places:
    """Return the places of runs of words that are duplicates, as Gopher counts them.

    A run of ``length`` words is a duplicate if an equal run came before. The next run then begins after it, so that no
    word counts twice. Runs that are the first of their group are not visited one by one.
    """
    places, group = repeats.places, repeats.group
    first = _first_of(repeats, np.arange(len(places)))
    numbers = np.flatnonzero(first[group] != np.arange(len(places)))
    after = places.searchsorted(places[numbers] + length)
    # single elements of these are read, which is faster than making lists of all
    number, earliest, following = numbers.data, first[group[numbers]].data, after.data
    resume, group_of = numbers.searchsorted(after).data, group[numbers].data
    passed, seen = bytearray(len(places)), bytearray(len(repeats.sizes))
    found: list[int] = []
    begin = place = 0
    while place < len(number):
        here = number[place]
        passed[begin:here] = b"\1" * (here - begin)
        if passed[earliest[place]] or seen[group_of[place]]:
            found.append(here)
            begin, place = following[place], resume[place]
        else:
            seen[group_of[place]] = True
            begin, place = here + 1, place + 1
    return places[found]


def _first_of(repeats: Repeats, values: Places) -> Places:
    """Return the value of the first element of each group."""
    found = np.empty(len(repeats.sizes), dtype=np.int64)
    found[repeats.group[::-1]] = values[::-1]  # the last assignment counts
    return found
