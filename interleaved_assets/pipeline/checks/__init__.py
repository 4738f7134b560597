"""Checks of a shard after a stage, judged from the stage's record, so that no output is read again."""
