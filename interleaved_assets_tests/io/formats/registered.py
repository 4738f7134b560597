"""Formats that take the place of others for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from interleaved_assets.io.formats.format import ShardFormat, all_formats, register_format, unregister_format


@contextmanager
def in_place_of(known: ShardFormat, other: ShardFormat) -> Iterator[None]:
    """Let ``other`` be the registered format instead of ``known``; the order of formats stays."""
    before = all_formats()
    for one in before:
        unregister_format(one.name)
    try:
        for one in before:
            register_format(other if one is known else one)
        yield
    finally:
        for one in all_formats():
            unregister_format(one.name)
        for one in before:
            register_format(one)
