"""The Dagster side: assets, checks, sensors, jobs, resources. The only folder that imports Dagster."""
