"""A sensor or the schedule evaluated in a fresh process, which has loaded the definitions as a code server does.

``python -m benchmarks.scale_probe sensor --cursor 1``, with ``DAGSTER_HOME`` and ``INTERLEAVED_SETTINGS`` set, prints a
line of JSON: what each evaluation gave, its seconds, those of the processor, and memory in MiB.
:mod:`benchmarks.scale` calls it.
"""

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.scale_services import Memory

QUIETLY = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
NIGHT = datetime(2026, 11, 21, 2, tzinfo=UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("listing", "sensor", "nightly", "report"))
    parser.add_argument("--cursor")
    parser.add_argument("--times", type=int, default=1, help="evaluations, each with the cursor of the one before")
    arguments = parser.parse_args()

    memory = Memory()
    bare = memory.now()
    import dagster as dg

    from interleaved_assets.definitions import defs
    from interleaved_assets.pipeline.raw.listing import list_raw_shards
    from interleaved_assets.settings import load_settings

    repository = defs.get_repository_def()
    evaluations, cursor = [], arguments.cursor
    with dg.DagsterInstance.get() as instance:
        instance.get_dynamic_partitions("shards")  # the storage's modules load with the first question
        loaded = memory.now()

        def evaluate() -> dict[str, Any]:
            if arguments.what == "listing":
                return {"shards": sum(1 for _ in list_raw_shards(load_settings().storage))}
            if arguments.what == "report":
                run = defs.resolve_implicit_global_asset_job_def().execute_in_process(
                    instance=instance, asset_selection=[dg.AssetKey("dataset_report")], run_config=QUIETLY
                )
                return {"success": run.success}
            if arguments.what == "nightly":
                context = dg.build_schedule_context(instance, NIGHT, repository_def=repository)
                data = repository.get_schedule_def("nightly").evaluate_tick(context)
                return {"requested": len(data.run_requests or ()), "said": data.skip_message}
            tick = repository.get_sensor_def("raw_shard_sensor").evaluate_tick(
                dg.build_sensor_context(instance, cursor, repository_def=repository)
            )
            return {
                "cursor": tick.cursor,
                "events": len(tick.asset_events),
                "requested": len(tick.run_requests or ()),
                "said": tick.skip_message,
            }

        for _ in range(arguments.times):
            evaluations.append(measured(evaluate, memory))
            cursor = evaluations[-1].get("cursor", cursor)
    print(json.dumps({"bare_mib": bare, "loaded_mib": loaded, "evaluations": evaluations}))


def measured(action: Callable[[], dict[str, Any]], memory: Memory) -> dict[str, Any]:
    """The result of ``action``, with its seconds, those of the processor, memory at the start and peak memory."""
    memory.forget_peak()
    before, started, cpu = memory.now(), time.perf_counter(), time.process_time()
    found = action()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    return {**found, "seconds": seconds, "cpu_seconds": cpu_seconds, "before_mib": before, "peak_mib": memory.peak()}


if __name__ == "__main__":
    main()
