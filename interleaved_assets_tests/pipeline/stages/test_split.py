"""Splitting samples into parts: nothing lost, as few parts as the bounds allow, and about equal ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.pipeline.stages.final_tars import split_evenly

SIZES = st.lists(st.integers(1, 30), max_size=40)
BOUNDS = {"max_samples": st.none() | st.integers(1, 9), "max_bytes": st.none() | st.integers(1, 60)}


def fewest(sizes: list[int], max_samples: int | None, max_bytes: int | None) -> int:
    """The fewest parts: each takes all samples that it can hold, and one above the bound stands alone."""
    parts = samples = filled = 0
    for size in sizes:
        is_over = max_bytes is not None and size > max_bytes
        is_full = samples == max_samples or (max_bytes is not None and filled + size > max_bytes)
        if not samples or is_full:
            parts, samples, filled = parts + 1, 0, 0
        samples, filled = samples + 1, filled + size
        if is_over:
            samples = filled = 0
    return parts


@given(sizes=SIZES, **BOUNDS)
def test_parts_are_contiguous_complete_bounded_and_as_few_as_can_be(
    sizes: list[int], max_samples: int | None, max_bytes: int | None
) -> None:
    parts = split_evenly(sizes, max_samples=max_samples, max_bytes=max_bytes)
    assert [number for part in parts for number in part] == [*range(len(sizes))]
    assert parts == split_evenly(tuple(sizes), max_samples=max_samples, max_bytes=max_bytes)
    if not sizes:
        assert parts == [range(0)]
        return
    assert len(parts) == fewest(sizes, max_samples, max_bytes)
    for part in parts:
        assert 1 <= len(part) <= (max_samples or len(sizes))
        assert max_bytes is None or len(part) == 1 or sum(sizes[number] for number in part) <= max_bytes


@given(count=st.integers(1, 500), max_samples=st.integers(1, 60))
def test_without_a_bound_in_bytes_parts_differ_by_one_sample_at_most(count: int, max_samples: int) -> None:
    lengths = [len(part) for part in split_evenly([7] * count, max_samples=max_samples)]
    assert len(lengths) == -(-count // max_samples)
    assert max(lengths) - min(lengths) <= 1


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=60), max_bytes=st.integers(60, 90))
def test_with_a_bound_in_bytes_parts_are_near_an_equal_share(sizes: list[int], max_bytes: int) -> None:
    taken = [sum(sizes[number] for number in part) for part in split_evenly(sizes, max_bytes=max_bytes)]
    left = len(taken)
    for number, size in enumerate(taken):
        share = sum(taken[number:]) / (left - number)
        # as near as a border comes, unless the bound forbids it
        assert (
            abs(size - share) <= 9 / 2
            or size > max_bytes - 9
            or sum(taken[number + 1 :]) > (left - number - 1) * (max_bytes - 9)
        )


@pytest.mark.parametrize(
    ("sizes", "bounds", "lengths"),
    [
        ([1] * 10, {}, [10]),
        ([1] * 10, {"max_samples": 4}, [3, 3, 4]),
        ([1] * 8, {"max_samples": 4}, [4, 4]),
        ([5, 5, 5, 5, 5, 5, 5], {"max_bytes": 20}, [3, 4]),  # filled up they would be 4 and 3
        ([1, 1, 1, 1, 1, 1, 1, 1, 1], {"max_bytes": 8}, [4, 5]),  # and here 8 and 1
        ([3, 1, 1, 9, 1, 1], {"max_bytes": 5}, [3, 1, 2]),  # 9 is above the bound and stands alone
        ([9, 9], {"max_bytes": 5}, [1, 1]),
        ([1] * 6, {"max_bytes": 6, "max_samples": 2}, [2, 2, 2]),
        ([6, 1, 1, 1], {"max_bytes": 6, "max_samples": 9}, [1, 3]),
        ([2, 2], {"max_bytes": -10}, [1, 1]),
    ],
)
def test_examples(sizes: list[int], bounds: dict[str, int], lengths: list[int]) -> None:
    assert [len(part) for part in split_evenly(sizes, **bounds)] == lengths
