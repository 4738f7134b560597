"""A message for an instance whose ``dagster.yaml`` names a storage of an earlier version: it says what to change."""

from interleaved_assets.model.errors import SettingsError

raise SettingsError(
    "dagster.yaml names a storage of interleaved_assets.defs.private_api, which is gone: instances use Dagster's own. "
    "Delete the section `storage` of $DAGSTER_HOME/dagster.yaml for SQLite, or replace it by that of "
    "deploy/postgres/dagster.yaml for PostgreSQL; the stored runs and events stay valid."
)
