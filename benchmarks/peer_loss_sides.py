"""The calls that the loss cases need, implemented for both libraries; each side is imported only where it runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

Rows = list[dict[str, Any]]
Batches = list[Any]


class Side(Protocol):
    """The operations of a library; a batch is an object of that library."""

    def read(self, paths: list[Path], *, lazy: bool = False, sample_id_field: str | None = None) -> Batches:
        """Read WebDataset tars, with image bytes unless ``lazy``."""

    def found(self, folder: Path) -> int:
        """Number of tars that a reader with default endings finds in a folder."""

    def batches(self, table: pa.Table) -> Batches:
        """A batch of the given rows."""

    def rows(self, batches: Batches) -> Rows:
        """All rows, in order."""

    def filter(self, batches: Batches, kind: str) -> Batches:
        """Filter by ``aspect`` (ratios to 10), ``blur`` (sharpness from 0) or ``qr`` (area below 5 %)."""

    def writer(self, folder: Path, form: str, mode: str) -> Any:
        """A writer of ``wds`` or ``parquet``."""

    def write(self, batches: Batches, folder: Path, form: str = "wds") -> list[Path]:
        """Write all batches and return the files."""

    def said(self) -> list[str]:
        """Rows that the last read or filter reported as dropped: stage, reason and detail."""


class PeerOption(NamedTuple):
    """A documented option of nemo-curator that may avoid a loss: arguments in place of those that a case passes."""

    name: str
    reader: Mapping[str, Any] = {}
    filter: Mapping[str, Any] = {}
    writer: Mapping[str, Any] = {}
    depends: str = ""
    """What the input has to be like."""


PEER_OPTIONS = (
    PeerOption("`fields`", reader={"fields": ("url", "licence", "language", "tags", "key", "more")}),
    PeerOption("`materialize_on_read=True`", reader={"materialize_on_read": True}),
    PeerOption("`materialize_on_read=False`", reader={"materialize_on_read": False}),
    PeerOption("`file_extensions`", reader={"file_extensions": [".tar", ".gz"]}),
    PeerOption("`per_image_fields`", reader={"per_image_fields": ("image_metadata",)}),
    PeerOption("`drop_invalid_rows=False`", filter={"drop_invalid_rows": False}),
    PeerOption("another `mode`", writer={"mode": "append"}),
    PeerOption("another `mode`", writer={"mode": "ignore"}),
    *(
        PeerOption(f"`on_materialize_error='{policy}'`", writer={"on_materialize_error": policy})
        for policy in ("warn", "drop_row", "drop_sample")
    ),
    PeerOption("`sample_id_field`", reader={"sample_id_field": "id"}, depends="where documents have different ids"),
    PeerOption("no `sample_id_field`", reader={"sample_id_field": None}, depends="where file names differ"),
)
"""Each is tried on every case."""


class PeerSide:
    """nemo-curator's stages, called directly."""

    def __init__(self, option: PeerOption | None = None) -> None:
        from loguru import logger

        logger.remove()
        self._option = option or PeerOption("")

    def read(self, paths: list[Path], *, lazy: bool = False, sample_id_field: str | None = None) -> Batches:
        from nemo_curator.stages.interleaved.io.readers import InterleavedWebdatasetReaderStage
        from nemo_curator.tasks import FileGroupTask

        given = {"materialize_on_read": not lazy, "sample_id_field": sample_id_field} | self._option.reader
        given.pop("file_extensions", None)  # of the stage that lists files
        reader = InterleavedWebdatasetReaderStage(**given)
        read = reader.process(FileGroupTask(dataset_name="case", data=[str(path) for path in paths]))
        return read if isinstance(read, list) else [read]

    def found(self, folder: Path) -> int:
        from nemo_curator.stages.interleaved.io.reader import InterleavedWebdatasetReader
        from nemo_curator.tasks import EmptyTask

        partitioning, _ = InterleavedWebdatasetReader(file_paths=str(folder), **self._option.reader).decompose()
        return sum(len(task.data) for task in partitioning.process(EmptyTask()))

    def batches(self, table: pa.Table) -> Batches:
        from nemo_curator.tasks import InterleavedBatch

        return [InterleavedBatch(dataset_name="case", data=table)]

    def rows(self, batches: Batches) -> Rows:
        return [row for batch in batches for row in batch.to_pyarrow().to_pylist()]

    def filter(self, batches: Batches, kind: str) -> Batches:
        from nemo_curator.stages.interleaved.filter import InterleavedBlurFilterStage, InterleavedQRCodeFilterStage
        from nemo_curator.stages.interleaved.stages import InterleavedAspectRatioFilterStage

        kinds: dict[str, tuple[Any, dict[str, Any]]] = {
            "aspect": (InterleavedAspectRatioFilterStage, {"min_aspect_ratio": 0.0, "max_aspect_ratio": 10.0}),
            "blur": (InterleavedBlurFilterStage, {"score_threshold": 0.0}),
            "qr": (InterleavedQRCodeFilterStage, {"score_threshold": 0.05}),
        }
        stage_class, given = kinds[kind]
        stage = stage_class(**given, **self._option.filter)
        return [stage.process(batch) for batch in batches]

    def writer(self, folder: Path, form: str, mode: str) -> Any:
        from nemo_curator.stages.interleaved.io.writers import (
            InterleavedParquetWriterStage,
            InterleavedWebdatasetWriterStage,
        )

        kind = InterleavedWebdatasetWriterStage if form == "wds" else InterleavedParquetWriterStage
        return kind(**{"path": str(folder), "mode": mode} | self._option.writer)

    def write(self, batches: Batches, folder: Path, form: str = "wds") -> list[Path]:
        writer = self.writer(folder, form, "ignore")
        return [Path(path) for batch in batches for path in writer.process(batch).data]

    def said(self) -> list[str]:
        return []


class OwnSide:
    """This project's readers, filters and writers, as a script without Dagster uses them."""

    def __init__(self) -> None:
        import logging

        logging.disable(logging.WARNING)  # what they say is asked for in other ways
        self._said: list[str] = []

    def read(self, paths: list[Path], *, lazy: bool = False, sample_id_field: str | None = None) -> Batches:
        from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader

        uris = [str(path) for path in paths]
        return list(InterleavedWebdatasetReader(uris, materialize_on_read=not lazy, sample_id_field=sample_id_field))

    def found(self, folder: Path) -> int:
        from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader

        return sum(len(files) for files in InterleavedWebdatasetReader(str(folder)).partitions())

    def batches(self, table: pa.Table) -> Batches:
        from interleaved_assets.model.batch import InterleavedBatch

        return [InterleavedBatch(table)]

    def rows(self, batches: Batches) -> Rows:
        return [row for batch in batches for row in batch.to_pyarrow().to_pylist()]

    def filter(self, batches: Batches, kind: str) -> Batches:
        from interleaved_assets.scoring.protocol.settings import ScoringSettings
        from interleaved_assets.selection.batch import filter_batch
        from interleaved_assets.selection.settings import SelectionSettings

        selection, scoring = {
            "aspect": ({"order": ("aspect",), "max_aspect_ratio": 10.0}, {"scorers": ()}),
            "blur": ({"order": ("sharpness",), "min_sharpness": 0.0}, {"scorers": ("sharpness",)}),
            "qr": ({"order": ("qr",), "max_qr_area_ratio": 0.05}, {"scorers": ("qr",), "qr_detector": "opencv"}),
        }[kind]
        kept = []
        for batch in batches:
            filtered, ledger = filter_batch(batch, SelectionSettings(**selection), ScoringSettings(**scoring))
            kept.append(filtered)
            self._said += [f"{row['reason']}: {row['detail']}" for row in ledger.to_pylist()]
        return kept

    def writer(self, folder: Path, form: str, mode: str) -> Any:
        from interleaved_assets.io.parquet.writer import InterleavedParquetWriter
        from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter

        return (InterleavedWebdatasetWriter if form == "wds" else InterleavedParquetWriter)(str(folder), mode=mode)

    def write(self, batches: Batches, folder: Path, form: str = "wds") -> list[Path]:
        writer = self.writer(folder, form, "error")
        return [Path(path) for batch in batches for path in writer.write(batch)]

    def said(self) -> list[str]:
        return self._said


SIDES = {"peer": PeerSide, "own": OwnSide}
