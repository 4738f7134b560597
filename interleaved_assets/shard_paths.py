"""Where the outputs of a shard lie below the output root."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
        """The rows that the stage writes: Parquet, and a tar for the last stage."""
        if stage == "final_tars":
            return f"{self.output_root}/tars/{self.key}.tar"
        return f"{self.output_root}/{stage}/{self.key}.parquet"

    def sample_scores(self) -> str:
        """The values that the sample filters compared with their thresholds, one row per sample that reached them."""
        return f"{self.output_root}/sample_scores/{self.key}.parquet"

    def ledger(self, stage: str) -> str:
        """The ledger of the rows that the stage dropped, as Parquet."""
        return f"{self.output_root}/dropped/{stage}/{self.key}.parquet"

    def pictures(self, stage: str) -> str:
        """The pictures that the UI shows for the stage, as JSON."""
        return f"{self.output_root}/pictures/{stage}/{self.key}.json"

    def record(self, stage: str) -> str:
        """The stage's record, as JSON."""
        return f"{self.output_root}/records/{stage}/{self.key}.json"

    def outputs(self, stage: str) -> dict[str, str]:
        """Every output that the stage may write, by role."""
        scores = {"samples": self.sample_scores()} if stage == "filtered" else {}
        return {"rows": self.output(stage), "ledger": self.ledger(stage), **scores}
