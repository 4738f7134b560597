"""Three assets in the manner of the project's chain that say where they ran. Workers load them, so they stand apart."""

import os

import dagster as dg

from interleaved_assets.defs.executors import GPU, build_executor, gpu_tags
from interleaved_assets.settings import load_settings

ASSETS = ("before", "on_gpu", "after")


def _asset(name: str, deps: list[str], **needs: object) -> dg.AssetsDefinition:
    @dg.asset(name=name, deps=deps, **needs)
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        print(f"this is {name}")  # what the compute log has to hold
        return dg.MaterializeResult(metadata={"pid": os.getpid()})

    return asset


def toy_job() -> dg.JobDefinition:
    """The three assets as a job, under the executor of the settings in force."""
    definitions = dg.Definitions(
        assets=[
            _asset("before", []),
            _asset("on_gpu", ["before"], pool=GPU, op_tags=gpu_tags("auto")),
            _asset("after", ["on_gpu"]),
        ],
        jobs=[dg.define_asset_job("toy")],
        executor=build_executor(load_settings().run),
    )
    return definitions.resolve_job_def("toy")


def said(instance: dg.DagsterInstance) -> dict[str, dict[str, object]]:
    """What each asset said at its latest materialization."""
    found = {}
    for name in ASSETS:
        event = instance.get_latest_materialization_event(dg.AssetKey(name))
        if event is not None and event.asset_materialization is not None:
            found[name] = {key: value.value for key, value in event.asset_materialization.metadata.items()}
    return found
