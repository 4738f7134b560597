"""Checks of a shard after a stage, judged from the stage's record, so that no output is read again."""

from interleaved_assets.pipeline.checks.keep_rate import KEEP_RATE
from interleaved_assets.pipeline.checks.layout import LAYOUT
from interleaved_assets.pipeline.checks.rows import KEYS_UNIQUE, MATERIALIZATION_ERRORS, READS_BACK, ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.schemas import CLIP_SCORE_SCHEMA, IMAGE_SCORE_SCHEMA, ROW_SCHEMA
from interleaved_assets.pipeline.checks.scores import CLIP_SCORES_IN_RANGE, EVERY_IMAGE_SCORED, IMAGE_SCORES_IN_RANGE
from interleaved_assets.pipeline.checks.verdict import Basis, ShardCheck, Verdict, combine

__all__ = [
    "CLIP_SCORES_IN_RANGE",
    "CLIP_SCORE_SCHEMA",
    "EVERY_IMAGE_SCORED",
    "IMAGE_SCORES_IN_RANGE",
    "IMAGE_SCORE_SCHEMA",
    "KEEP_RATE",
    "KEYS_UNIQUE",
    "LAYOUT",
    "MATERIALIZATION_ERRORS",
    "READS_BACK",
    "ROWS_ACCOUNTED_FOR",
    "ROW_SCHEMA",
    "Basis",
    "ShardCheck",
    "Verdict",
    "combine",
]
