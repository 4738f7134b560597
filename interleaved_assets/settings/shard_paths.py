"""The paths of the outputs of a shard below the output root."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from interleaved_assets.export.names import STAGE as IMAGE_EXPORT
from interleaved_assets.export.names import is_image_file

FINAL_TARS: Final = "final_tars"
"""The stage whose output may be split into several tars."""
TARS_FOLDER: Final = "tars"
IMAGES_FOLDER: Final = "images"
FAILURES_FOLDER: Final = "failures"
ROWS: Final = "rows"
"""The role of the one output of a stage that other stages read. Ledgers and scores of samples are read by people only.
"""
LEDGER: Final = "ledger"
CHANGES: Final = "changes"
"""The role of the ledger of changed and dropped texts, and its folder."""
SAMPLES: Final = "samples"
"""The role of the values that the sample filters compared."""
_FOLDERS: Final = {SAMPLES: "sample_scores"}
"""Folders of further outputs that are not called like their role."""
_ROLE: Final = re.compile(r"[a-z_]+")
_PART_ROLE: Final = re.compile(r"rows-(\d{5})")
# no key ends with a part's mark and digits: keys have "~" only in front of 32 hex digits
PART_MARK: Final = "~"
"""The mark in the name of a part, in front of its five digits."""
_PART_PATH: Final = re.compile(rf"(?P<key>.+?)(?:{PART_MARK}\d{{5}})?\.tar")


def part_role(number: int) -> str:
    """Return the role of part ``number``, from 0, of a split final tar."""
    return f"rows-{number:05d}"


def is_rows_role(role: str) -> bool:
    """Return whether an output of this role has rows that other stages read: the whole output, or a part of it."""
    return role == ROWS or _PART_ROLE.fullmatch(role) is not None


@dataclass(frozen=True)
class ShardPaths:
    """URIs of all files that the stages write for one shard.

    Attributes:
        output_root: folder or URL, without a slash at its end.
        key: partition key of the shard.
        options: fsspec storage options of the output root.
    """

    output_root: str
    key: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)

    def output(self, stage: str) -> str:
        """Return the path of the stage's rows: a Parquet file, or a tar for the last stage, unless it is split."""
        if stage == FINAL_TARS:
            return f"{self.output_root}/{TARS_FOLDER}/{self.key}.tar"
        return f"{self.output_root}/{stage}/{self.key}.parquet"

    def tar_part(self, number: int) -> str:
        """Return the path of part ``number``, from 0, of the final tar if it is split."""
        return f"{self.output_root}/{TARS_FOLDER}/{self.key}{PART_MARK}{number:05d}.tar"

    def images(self) -> str:
        """Return the folder of the exported tars and their tables. Other shards may have folders in it."""
        return f"{self.output_root}/{IMAGES_FOLDER}/{self.key}"

    def other(self, role: str) -> str:
        """Return the path of a further output of a stage, such as :data:`SAMPLES` and :data:`CHANGES`, as Parquet."""
        return f"{self.output_root}/{_FOLDERS.get(role, role)}/{self.key}.parquet"

    def ledger(self, stage: str) -> str:
        """Return the path of the ledger of the rows that the stage dropped, as Parquet."""
        return f"{self.output_root}/dropped/{stage}/{self.key}.parquet"

    def pictures(self, stage: str) -> str:
        """Return the path of the pictures that the UI shows for the stage, as JSON."""
        return f"{self.output_root}/pictures/{stage}/{self.key}.json"

    def page(self) -> str:
        """Return the path of the page with the shard's documents, kept and dropped rows, as HTML."""
        return f"{self.output_root}/pages/{self.key}.html"

    def record(self, stage: str) -> str:
        """Return the path of the stage's record, as JSON."""
        return f"{self.output_root}/records/{stage}/{self.key}.json"

    def failure(self, stage: str) -> str:
        """Return the path of the shard's last failure at the stage, a JSON that exists until the stage succeeds."""
        return f"{self.output_root}/{FAILURES_FOLDER}/{stage}/{self.key}.json"

    def outputs(self, stage: str, others: Iterable[str] = ()) -> dict[str, str]:
        """Return the path of every output that the stage may write, by role; ``others`` are the roles beside two.

        The files in :meth:`images` and :meth:`tar_part` are left out.
        """
        return {ROWS: self.output(stage), LEDGER: self.ledger(stage), **{role: self.other(role) for role in others}}

    def place(self, stage: str, role: str) -> str | None:
        """Return the path of the output with this role; None if there is none.

        The role of an exported tar, and of its table, is the file's name.
        """
        if stage == FINAL_TARS and (part := _PART_ROLE.fullmatch(role)):
            return self.tar_part(int(part[1]))
        if stage == IMAGE_EXPORT and is_image_file(role):
            return f"{self.images()}/{role}"
        if role in (ROWS, LEDGER):
            return self.outputs(stage)[role]
        return self.other(role) if _ROLE.fullmatch(role) else None

    def folders(self, stage: str, others: Iterable[str] = ()) -> set[str]:
        """Return the folders that contain the outputs of the stage, of all shards; ``others`` as in :meth:`outputs`."""
        any_shard = ShardPaths(self.output_root, "any", self.options)
        places = [*any_shard.outputs(stage, others).values(), *([any_shard.images()] if stage == IMAGE_EXPORT else [])]
        return {uri.rpartition("/")[0] for uri in places}


def shard_of_tar(uri: str, output_root: str) -> str | None:
    """Return the key of the shard whose final tar, or part of it, would be at ``uri``; None for another place."""
    folder = f"{output_root.rstrip('/')}/{TARS_FOLDER}/"
    found = _PART_PATH.fullmatch(uri.removeprefix(folder)) if uri.startswith(folder) else None
    return found["key"] if found else None
