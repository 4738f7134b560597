"""The split of a shard's samples into consecutive parts of about equal size, as few as the bounds allow."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def split_evenly(sizes: Sequence[int], *, max_samples: int | None = None, max_bytes: int | None = None) -> list[range]:
    """Return the numbers of the samples of each part: consecutive, in order, each sample in one part, no part empty.

    There are as few parts as the bounds allow. A sample above ``max_bytes`` is a part of its own. Without ``max_bytes``
    the numbers of samples of two parts differ by at most one. With it, each part ends at the border of a sample that
    comes nearest to an equal share of the bytes that are left.

    The same arguments always give the same parts. There is at least one part, which is empty if there are no samples.
    ``sizes`` are the bytes of each sample; only these count for ``max_bytes``. None means no bound.
    """
    if max_bytes is None:
        # without a bound in bytes a part is measured by its number of samples
        return _split_run(0, [1] * len(sizes), max_samples, len(sizes)) or [range(0)]
    parts: list[range] = []
    start = 0
    for number, size in enumerate(sizes):
        if size > max_bytes:
            parts += _split_run(start, sizes[start:number], max_samples, max_bytes)
            parts.append(range(number, number + 1))
            start = number + 1
    parts += _split_run(start, sizes[start:], max_samples, max_bytes)
    return parts or [range(0)]


def _split_run(first: int, sizes: Sequence[int], max_samples: int | None, max_bytes: int) -> list[range]:
    """Return the parts of samples none of which exceeds ``max_bytes``; ``first`` is the number of the first sample."""
    count = len(sizes)
    most = count if max_samples is None else max_samples
    before = [0, *accumulate(sizes)]  # bytes of all samples before each border

    def furthest(start: int) -> int:
        """Return the last border at which a part that begins at the border ``start`` may end."""
        return min(bisect_right(before, before[start] + max_bytes) - 1, start + most)

    # for 0, 1, 2, … parts, the first border from which they reach the end
    earliest = [count]
    for start in range(count - 1, -1, -1):
        if furthest(start) < earliest[-1]:
            earliest.append(start + 1)
    parts: list[range] = []
    start = 0
    for left in range(len(earliest) if count else 0, 0, -1):
        low = max(earliest[left - 1], start + 1)
        high = min(furthest(start), count - left + 1)
        # in integers, so that rounding decides nothing
        share = before[start] * left + before[count] - before[start]
        stop = low
        while stop < high and abs(before[stop + 1] * left - share) < abs(before[stop] * left - share):
            stop += 1
        parts.append(range(first + start, first + stop))
        start = stop
    return parts
