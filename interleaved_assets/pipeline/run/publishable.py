"""Requirements for the layout of a shard: most samples have content, few bytes are unreferenced."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.rows.raw_versions import image_bytes
from interleaved_assets.io.tar.layout import json_field
from interleaved_assets.io.tar.unreferenced import unreferenced_members
from interleaved_assets.model.columns import BINARY_SIZE
from interleaved_assets.model.digits import percent
from interleaved_assets.model.errors import UnexpectedLayout
from interleaved_assets.pipeline.raw.bundles import raw_format
from interleaved_assets.pipeline.run.counts import (
    CONTENT_BYTES,
    SAMPLES_WITH_CONTENT,
    UNREFERENCED,
    UNREFERENCED_BYTES,
    UNREFERENCED_IMAGES,
)
from interleaved_assets.pipeline.run.stage import ShardTask
from interleaved_assets.settings import PublishSettings, ReadingSettings, Settings

_NAMED: Final = 8


class ContentCounter:
    """Counts of samples with content, and of members that no document names, over batches of whole samples."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter(
            {SAMPLES_WITH_CONTENT: 0, CONTENT_BYTES: 0, UNREFERENCED: 0, UNREFERENCED_BYTES: 0, UNREFERENCED_IMAGES: 0}
        )
        self._extensions: Counter[str] = Counter()
        self._fields: list[str] = []

    def counting(self, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield ``batches``, and count each as it passes."""
        for table in batches:
            content = pc.not_equal(table["modality"], "metadata")
            self._counts[SAMPLES_WITH_CONTENT] += pc.count_distinct(table["sample_id"].filter(content)).as_py()
            for sizes in (pc.binary_length(table["text_content"]), image_bytes(table)):
                self._counts[CONTENT_BYTES] += pc.sum(sizes, min_count=0).as_py()
            for member in unreferenced_members(table):
                self._counts[UNREFERENCED] += 1
                self._counts[UNREFERENCED_BYTES] += member.size
                self._counts[UNREFERENCED_IMAGES] += member.is_image
                self._extensions[member.extension or "without ending"] += 1
            columns = (column for column in table.column_names if column != BINARY_SIZE)
            self._fields = [field for column in columns if (field := json_field(column)) is not None]
            yield table

    @property
    def counted(self) -> dict[str, int]:
        """Samples with content, bytes of texts and images, and the members, bytes and images that no document names."""
        return dict(self._counts)

    def check_layout(self, shard: ShardTask, samples: int, errors: Mapping[str, int]) -> None:
        """Raise UnexpectedLayout if ``samples`` samples are not laid out as ``[reading]`` and ``[publish]`` ask for.

        ``errors`` counts the rows with each error code, which may be the cause.
        """
        settings = shard.settings
        found = layout_problems(samples, self._counts, settings.publish)
        if not found:
            return
        assert shard.raw is not None
        form = raw_format(shard.raw.uri, settings.storage)
        codes = ", ".join(f"{count:,} {code}" for code, count in errors.items())
        causes = f"Rows with errors, which docs/errors.md explains: {codes}. " if codes else ""
        members, fields = "", ""
        if form.has_layout:
            counts = ", ".join(f"{count:,} {name}" for name, count in self._extensions.most_common(_NAMED))
            members = f"Members that no document names: {counts or 'none'}. "
        if self._fields:
            more = ", …" if len(self._fields) > _NAMED else ""
            fields = f"The documents have the fields {', '.join(self._fields[:_NAMED])}{more}. "
        elif not self._counts[SAMPLES_WITH_CONTENT]:
            fields = "There is no document with a field. "
        raise UnexpectedLayout(
            f"shard {shard.key}: {'; '.join(found)}. {causes}{members}{fields}{expected_layout(form, settings.reading)}"
        )


def layout_problems(samples: int, counted: Mapping[str, int], bounds: PublishSettings) -> list[str]:
    """Return which bounds of a layout ``samples`` samples exceed, by the counts of :class:`ContentCounter`."""
    problems = []
    empty = samples - counted[SAMPLES_WITH_CONTENT]
    if samples and empty > bounds.max_empty_samples * samples:
        problems.append(
            f"{empty:,} of {samples:,} samples yield no text and no image, more than publish.max_empty_samples "
            f"{bounds.max_empty_samples:g}"
        )
    share = unreferenced_share(counted)
    if share > bounds.max_unreferenced_bytes:
        problems.append(
            f"members that no document names have {percent(share, bounds.max_unreferenced_bytes)} of the bytes, more "
            f"than publish.max_unreferenced_bytes {bounds.max_unreferenced_bytes:g}"
        )
    return problems


def unreferenced_share(counted: Mapping[str, int]) -> float:
    """Return bytes of members that no document names ÷ bytes of texts, images and these members, 0 to 1."""
    unreferenced = counted[UNREFERENCED_BYTES]
    return unreferenced / (unreferenced + counted[CONTENT_BYTES]) if unreferenced else 0.0


def other_layout(samples: int, counted: Mapping[str, int], form: ShardFormat, settings: Settings) -> list[str]:
    """Return the signs that a file is not laid out as ``settings`` say; the last one ends with the expected layout."""
    problems = layout_problems(samples, counted, settings.publish)
    if problems:
        problems[-1] += f". {expected_layout(form, settings.reading)}"
    return problems


def expected_layout(form: ShardFormat, reading: ReadingSettings) -> str:
    """Describe the layout that these settings expect, and name the settings to change for another layout."""
    if not form.has_layout:
        return (
            f"docs/sources.md shows what is read of {form.name}; lists with other names than {reading.texts_field} and "
            f"{reading.images_field} are set by reading.texts_field and reading.images_field."
        )
    if reading.layout == "images":
        return (
            "Expected is for each sample an image, alone or with <key>.txt or <key>.json beside it, as "
            'reading.layout = "images" says and docs/formats.md shows.'
        )
    return (
        f"Expected is for each sample a <key>.json whose lists {reading.texts_field} and {reading.images_field} hold "
        "its texts and the names of its image members, as docs/formats.md shows; set reading.texts_field and "
        'reading.images_field if the lists have other names, and reading.layout = "images" if each sample is an '
        'image, alone or with a text or a JSON beside it ("detected" if some tars are so). Convert other layouts.'
    )
