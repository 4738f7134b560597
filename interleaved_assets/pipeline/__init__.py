"""One shard through one stage, as plain functions: what the assets call, and what works without Dagster."""
