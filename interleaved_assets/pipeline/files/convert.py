"""Convert shard files: one output for each input, with a record beside it by which it is not made again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from interleaved_assets.io.formats.registry import shard_endings
from interleaved_assets.io.storage import check_output, content_version, exists, join, read_stamp, remove_file
from interleaved_assets.io.storage.walk import KEPT_BESIDE
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.model.shown import without_credentials
from interleaved_assets.pipeline.files.filtering import keep_selected, scoring_for
from interleaved_assets.pipeline.files.inputs import ShardFile
from interleaved_assets.pipeline.files.write_rows import identities, identity, write_rows
from interleaved_assets.pipeline.raw.listing import RawSource
from interleaved_assets.pipeline.run.attempt import installed_versions, is_same_work
from interleaved_assets.pipeline.run.record import Facts, Record, read_record, with_present_stamps, write_record
from interleaved_assets.pipeline.run.stage import Work, version_with_settings
from interleaved_assets.scoring.protocol.registry import score_files, scoring_packages, scoring_version
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.texts.lists import list_versions
from interleaved_assets.selection.batch import scoring_of_texts
from interleaved_assets.selection.settings import SelectionSettings, selection_version
from interleaved_assets.settings import Settings, StorageSettings

STAGE: Final = "convert"
VERSION: Final = 1
"""To be raised when a change of code changes the output."""


@dataclass(frozen=True)
class Conversion:
    """The outputs to make of every input.

    Attributes:
        folder: folder or URL of the outputs.
        ending: of the outputs, that of a format which can be written.
        overwrite: whether to replace files that were not written by an earlier conversion.
    """

    folder: str
    ending: str
    settings: Settings
    selection: SelectionSettings | None = None
    overwrite: bool = False

    def output(self, file: ShardFile) -> str:
        return join(self.folder, f"{file.name}{self.ending}")

    def ledger(self, file: ShardFile) -> str:
        return join(self.folder, f"{KEPT_BESIDE}/dropped/{file.name}.parquet")

    def record_uri(self, file: ShardFile) -> str:
        return join(self.folder, f"{KEPT_BESIDE}/records/{file.name}.json")

    def version_settings(self) -> dict[str, object]:
        """Return the settings that the outputs depend on."""
        settings = self.settings
        formats = settings.reading.sections()
        found: dict[str, object] = {
            "ending": self.ending,
            "reading": settings.reading.model_dump(mode="json", exclude=set(formats)),
            # as they were before a format had a section of its own
            **{
                f"reading.{name}": section.model_dump(mode="json")
                for name, section in formats.items()
                if section != type(section)()
            },
            "limits": settings.limits.model_dump(mode="json"),
            "on_materialize_error": settings.errors.on_materialize_error,
            "accept_incomplete": settings.publish.accept_incomplete,
        }
        if self.selection is not None:
            found["selection"] = json.loads(selection_version(self.selection))
            found["scoring"] = settings.scoring.model_dump(mode="json", exclude={"scorers"})
            found["unreferenced_images"] = settings.publish.unreferenced_images
            if (texts := scoring_of_texts(self.selection, settings.documents)) is not None:
                found["documents"] = json.loads(scoring_version(texts)) | list_versions(score_files(texts))
        return found

    def code_version(self) -> str:
        """Return a version that changes with the code and with the settings that the outputs depend on."""
        return version_with_settings(VERSION, self.version_settings())

    def packages(self) -> dict[str, str]:
        """Return the versions of the packages that the filters measure with."""
        if self.selection is None:
            return {}
        images = scoring_for(self.selection, self.settings.scoring)
        texts = scoring_of_texts(self.selection, self.settings.documents)
        return installed_versions(scoring_packages(images) | (scoring_packages(texts) if texts else set()))


def check_outputs(files: Sequence[ShardFile], conversion: Conversion) -> None:
    """Refuse outputs that cannot be written.

    Raises:
        OptionError: no format with the ending can be written, two inputs would have the same output, an output would
            replace an input, or nothing can be written there.
        StorageError: an output would replace what is no regular file.
    """
    if conversion.ending not in (endings := shard_endings(writable=True)):
        known = ", ".join(ending.removeprefix(".") for ending in endings)
        raise OptionError(f"{conversion.ending.removeprefix('.')} cannot be written: --to takes {known}")
    inputs = {name: file.uri for file in files for name in identities(file.uri)}
    outputs: dict[str, str] = {}
    for file in files:
        uri = conversion.output(file)
        check_output(uri)
        if (other := outputs.setdefault(uri, file.uri)) != file.uri:
            raise OptionError(f"{other} and {file.uri} would both become {uri}: convert them into different folders")
        if (replaced := inputs.get(identity(uri))) is not None:
            raise OptionError(f"{uri} would replace the input {replaced}: name another folder with --output")


def convert_file(file: ShardFile, conversion: Conversion) -> tuple[Record, bool]:
    """Convert one file; returns the record, and whether it was there before, so that nothing was done.

    An output is current if it is the one that its record names, of the same content and under the same settings.

    Raises:
        StorageError: the output exists, and no record says that an earlier conversion of this input wrote it.
        ShardError: the input changed while it was read.
    """
    settings, place = conversion.settings, conversion.record_uri(file)
    options = settings.storage.options_for(conversion.folder)
    known = _earlier_record(file, conversion, options)
    source = _source_of(file, settings.storage, known.source if known else None)
    inputs, code_version, packages = {"source": source.version}, conversion.code_version(), conversion.packages()
    if known and is_same_work(known, inputs, code_version, packages):
        if known.source != source:
            write_record(known.model_copy(update={"source": source}), place, options)
        return known, True
    output = conversion.output(file)
    if not conversion.overwrite and exists(output, options) and (reason := _not_replaced(file, known, source)):
        raise StorageError(
            f"cannot write {output}: the file exists and {reason}. Name another folder with --output, or replace it "
            "with --overwrite."
        )
    work = _write(file, conversion, source)
    record = Record(
        stage=STAGE,
        shard=file.name,
        code_version=code_version,
        inputs=inputs,
        data_version=work.outputs["rows"].content,
        outputs=work.outputs,
        settings=conversion.version_settings(),
        packages=packages,
        source=source,
        **work.model_dump(include=set(Facts.model_fields)),
    )
    try:
        write_record(record, place, options)
    except StorageError:
        for written in work.outputs.values():  # without a record they would count as written by others
            remove_file(written.uri, options)
        raise
    return record, False


def _not_replaced(file: ShardFile, known: Record | None, source: RawSource) -> str | None:
    """Return why the present output must not be replaced without ``--overwrite``; None if it may be replaced."""
    if known is None:
        return "is not one that an earlier conversion wrote"
    if known.source is not None and identity(known.source.uri) != identity(source.uri):
        return f"was made from another input, {known.source.uri}"
    if source.uri != file.uri and known.inputs["source"] != source.version:
        return f"was made from another file at {source.uri}, or before it changed: no query of a URL is recorded"
    return None


def _write(file: ShardFile, conversion: Conversion, source: RawSource) -> Work:
    settings, selection = conversion.settings, conversion.selection

    def check_input() -> None:
        if _stamp_of(file, settings.storage) != source.stamp:
            raise ShardError(f"{file.uri} changed while it was read; convert it again once it is complete")

    def choose(table: pa.Table) -> tuple[pa.Table, pa.Table]:
        if selection is None:
            return table, empty_ledger()
        scores = score_images(table, scoring_for(selection, settings.scoring))
        return keep_selected(table, scores, selection, settings, file.uri)

    output, ledger = conversion.output(file), conversion.ledger(file)
    return write_rows(file, output, ledger, settings, choose, check_input)


def _earlier_record(file: ShardFile, conversion: Conversion, options: Mapping[str, object]) -> Record | None:
    """Return the record of the present output, which may be a copy; None if it names another one or is missing."""
    try:
        record = read_record(conversion.record_uri(file), options)
    except ShardError:
        return None  # the output, if there is one, then counts as written by others
    if record is None:
        return None
    places = {"rows": conversion.output(file), "ledger": conversion.ledger(file)}
    moved = {
        role: output.model_copy(update={"uri": places.get(role, output.uri)}) for role, output in record.outputs.items()
    }
    return with_present_stamps(record.model_copy(update={"outputs": moved}), options)


def _source_of(file: ShardFile, storage: StorageSettings, known: RawSource | None) -> RawSource:
    """Return the present input with the version of its content: the ETag if the storage has one, else a hash."""
    stamp = _stamp_of(file, storage)
    # never so for a URL with a query, which is not recorded: it may name another file
    if known is not None and (known.uri, known.stamp) == (file.uri, stamp):
        return known
    version = content_version(file.uri, stamp, storage.options_for(file.uri), like=known.version if known else "")
    return RawSource(uri=without_credentials(file.uri), size=file.size, stamp=stamp, version=version)


def _stamp_of(file: ShardFile, storage: StorageSettings) -> str:
    stamp = read_stamp(file.uri, storage.options_for(file.uri))
    if stamp is None:
        raise StorageError(f"{file.uri} is no file any more: it was moved or deleted")
    return stamp
