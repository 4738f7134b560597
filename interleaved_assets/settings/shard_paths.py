"""Where the outputs of a shard lie below the output root."""

import re
from collections.abc import Mapping
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
"""The role of the one output of a stage that other stages read. Ledgers and scores of samples are for people."""
_PART_ROLE: Final = re.compile(r"rows-(\d{5})")
# no key ends so: keys have "~" only in front of 32 hex digits
PART_MARK: Final = "~"
"""In the name of a part, in front of its five digits."""
_PART_PATH: Final = re.compile(rf"(?P<key>.+?)(?:{PART_MARK}\d{{5}})?\.tar")


def part_role(number: int) -> str:
    """The role of part ``number``, from 0, of a final tar that is split."""
    return f"rows-{number:05d}"


def is_rows_role(role: str) -> bool:
    """Whether an output of this role has rows: the one output of a stage that other stages read, or a part of it."""
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
        """The rows that the stage writes: Parquet, and a tar for the last stage, unless it is split."""
        if stage == FINAL_TARS:
            return f"{self.output_root}/{TARS_FOLDER}/{self.key}.tar"
        return f"{self.output_root}/{stage}/{self.key}.parquet"

    def tar_part(self, number: int) -> str:
        """Part ``number``, from 0, of the final tar if it is split."""
        return f"{self.output_root}/{TARS_FOLDER}/{self.key}{PART_MARK}{number:05d}.tar"

    def images(self) -> str:
        """The folder of the exported tars and their tables. Other shards may have folders in it."""
        return f"{self.output_root}/{IMAGES_FOLDER}/{self.key}"

    def sample_scores(self) -> str:
        """The values that the sample filters compared with their thresholds, one row per sample that reached them."""
        return f"{self.output_root}/sample_scores/{self.key}.parquet"

    def ledger(self, stage: str) -> str:
        """The ledger of the rows that the stage dropped, as Parquet."""
        return f"{self.output_root}/dropped/{stage}/{self.key}.parquet"

    def pictures(self, stage: str) -> str:
        """The pictures that the UI shows for the stage, as JSON."""
        return f"{self.output_root}/pictures/{stage}/{self.key}.json"

    def page(self) -> str:
        """The page with the shard's documents, what was kept and dropped of each, as HTML."""
        return f"{self.output_root}/pages/{self.key}.html"

    def record(self, stage: str) -> str:
        """The stage's record, as JSON."""
        return f"{self.output_root}/records/{stage}/{self.key}.json"

    def failure(self, stage: str) -> str:
        """The shard's last failure at the stage, as JSON, until the stage succeeds."""
        return f"{self.output_root}/{FAILURES_FOLDER}/{stage}/{self.key}.json"

    def outputs(self, stage: str) -> dict[str, str]:
        """Every output that the stage may write, by role, but for those in :meth:`images` and :meth:`tar_part`."""
        scores = {"samples": self.sample_scores()} if stage == "filtered" else {}
        return {ROWS: self.output(stage), "ledger": self.ledger(stage), **scores}

    def place(self, stage: str, role: str) -> str | None:
        """The output with this role; of exported tars and tables the role is the file's name. None if there is none."""
        if stage == FINAL_TARS and (part := _PART_ROLE.fullmatch(role)):
            return self.tar_part(int(part[1]))
        if stage == IMAGE_EXPORT and is_image_file(role):
            return f"{self.images()}/{role}"
        return self.outputs(stage).get(role)

    def folders(self, stage: str) -> set[str]:
        """The folders below which the outputs of the stage lie, of all shards."""
        any_shard = ShardPaths(self.output_root, "any", self.options)
        places = [*any_shard.outputs(stage).values(), *([any_shard.images()] if stage == IMAGE_EXPORT else [])]
        return {uri.rpartition("/")[0] for uri in places}


def shard_of_tar(uri: str, output_root: str) -> str | None:
    """The key of the shard whose final tar, or part of it, would be at ``uri``; None for another place."""
    folder = f"{output_root.rstrip('/')}/{TARS_FOLDER}/"
    found = _PART_PATH.fullmatch(uri.removeprefix(folder)) if uri.startswith(folder) else None
    return found["key"] if found else None
