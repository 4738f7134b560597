"""An interrupt that arrives while an event is stored takes effect after it, and is not lost."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import AssetKey

from interleaved_assets.defs import shard_run
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.interrupts import interrupts_deferred
from interleaved_assets_tests.documents import good_shard, project


class Interrupted(BaseException):
    """Raised by the handlers of these tests."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_takes_effect_when_the_block_ends(number: int) -> None:
    def handler(*_: Any) -> None:
        raise Interrupted(number)

    def store() -> None:
        with interrupts_deferred():
            os.kill(os.getpid(), number)
            done.append("stored")

    done: list[str] = []
    before = signal.signal(number, handler)
    try:
        with pytest.raises(Interrupted):
            store()
        assert done == ["stored"]
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_an_error_of_the_block_is_the_context_of_the_interrupt() -> None:
    def store() -> None:
        with interrupts_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("cannot be stored")

    with pytest.raises(KeyboardInterrupt) as caught:
        store()
    assert repr(caught.value.__context__) == "ValueError('cannot be stored')"


def test_other_threads_leave_the_handlers_alone() -> None:
    seen = []

    def block() -> None:
        with interrupts_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_a_shard_whose_events_are_stored_when_ctrl_c_arrives_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    good_shard(tmp_path / "raw/b.tar")
    store = shard_run.record_success

    def store_interrupted(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return store(*args, **kwargs)

    monkeypatch.setattr(shard_run, "record_success", store_interrupted)
    job = build_definitions(settings).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        first, *_ = register_all(instance, settings)
        result = job.execute_in_process(
            instance=instance, asset_selection=[AssetKey("normalized")], partition_key=first, raise_on_error=False
        )
        (failure,) = [event for event in result.all_events if event.is_step_failure]
        assert failure.step_failure_data.error is not None
        assert failure.step_failure_data.error.cls_name == "DagsterExecutionInterruptedError"
        assert instance.get_materialized_partitions(AssetKey("normalized")) == {first}
        assert instance.get_run_by_id(result.run_id).status is dg.DagsterRunStatus.FAILURE
