"""Identities of spans of code points and of runs of words: 64-bit hashes, all of a batch at once.

Two spans with the same characters have the same hash. Two others have it with a probability of about 2 to the -64.
"""

import functools

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_USUAL = 2**20
"""Powers that are kept: as many as most batches need."""


def _powers(base: int, count: int) -> Hashes:
    """Return the first ``count`` powers of ``base``, modulo 2 to the 64."""
    return _usual_powers(base)[:count] if count <= _USUAL else _all_powers(base, count)


def _all_powers(base: int, count: int) -> Hashes:
    found = np.full(count, base, dtype=np.uint64)
    found[:1] = 1
    return np.multiply.accumulate(found)


@functools.cache
def _usual_powers(base: int) -> Hashes:
    return _all_powers(base, _USUAL)


class SpanHashes:
    """The hashes of spans of an array of hashes, such as those of code points, or those of words for runs of words.

    A polynomial of these, modulo 2 to the 64: that of a span is the difference of two running sums, divided by the
    power at its start.
    """

    def __init__(self, values: Hashes) -> None:
        self._powers, self._inverse = _powers(_BASE, len(values)), _powers(_INVERSE, len(values) + 1)
        self._sums = _sums(values * self._powers)

    def of(self, starts: Places, ends: Places) -> Hashes:
        """Return the hash of each span."""
        found = self._sums[ends]
        found -= self._sums[starts]
        found *= self._inverse[starts]
        return found

    def of_length(self, length: int) -> Hashes:
        """Return the hash of the span of ``length`` elements from each place on, if there are so many."""
        found = self._sums[length:] - self._sums[: max(len(self._sums) - length, 0)]
        found *= self._inverse[: len(found)]
        return found


def hashes_of_codes(codes: NDArray[np.uint32]) -> Hashes:
    """Return a hash of each code point."""
    values = codes.astype(np.uint64)
    values += np.uint64(1)
    values *= _MIX
    values ^= values >> np.uint64(29)
    return values


def _sums(values: Hashes) -> Hashes:
    found = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values, out=found[1:])
    return found


def mixed(values: Hashes) -> Hashes:
    """Return other hashes for these, whose first bits depend on all bits."""
    found = values ^ (values >> np.uint64(32))
    found *= _MIX
    return found
