"""An interrupt that arrives while Dagster's storage is in use takes effect after it, and is not lost."""

import os
import signal
import threading
import traceback
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import AssetKey

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.interrupts import interrupts_deferred, interrupts_noted
from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.defs.schedules import DAILY_REPORT
from interleaved_assets.defs.steps import shard_run
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
    store = shard_run.record_successes

    def store_interrupted(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return store(*args, **kwargs)

    monkeypatch.setattr(shard_run, "record_successes", store_interrupted)
    job = build_definitions(settings).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        first, *_ = register_all(instance, settings.storage)
        result = job.execute_in_process(
            instance=instance, asset_selection=[AssetKey("normalized")], partition_key=first, raise_on_error=False
        )
        (failure,) = [event for event in result.all_events if event.is_step_failure]
        assert failure.step_failure_data.error is not None
        assert failure.step_failure_data.error.cls_name == "DagsterExecutionInterruptedError"
        assert instance.get_materialized_partitions(AssetKey("normalized")) == {first}
        assert instance.get_run_by_id(result.run_id).status is dg.DagsterRunStatus.FAILURE


def test_the_handler_of_sigterm_is_put_back_where_ctrl_c_arrives_at_the_end_of_the_block() -> None:
    def handler(*_: Any) -> None:
        raise Interrupted

    restore = signal.signal

    def send_while_restored(number: int, new: Any) -> Any:
        before = restore(number, new)
        if (number, new) == (signal.SIGINT, handler) and blocks:
            blocks.pop()
            signal.raise_signal(signal.SIGINT)
        return before

    blocks: list[str] = []
    own = restore(signal.SIGINT, handler), restore(signal.SIGTERM, handler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signal, "signal", send_while_restored)
            with pytest.raises(Interrupted), interrupts_deferred():
                blocks.append("at its end")
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        restore(signal.SIGINT, own[0])
        restore(signal.SIGTERM, own[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_noted_whichever_handler_has_it(number: int) -> None:
    before = signal.signal(number, lambda *_: None)
    try:
        with interrupts_noted() as have_arrived:
            assert not have_arrived()
            os.kill(os.getpid(), number)
            assert have_arrived()
            assert have_arrived()  # still
        with interrupts_noted() as have_arrived:
            assert not have_arrived()
    finally:
        signal.signal(number, before)


def test_other_signals_are_no_interrupts() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with interrupts_noted() as have_arrived:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not have_arrived()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_step_uses_the_storage_of_dagster_with_interrupts_deferred_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # an interrupt in the middle of a statement may leave SQLite locked, or may be dropped
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    (tmp_path / "out/state").mkdir(parents=True)
    (tmp_path / "out/state/status_notes.json").write_text("damaged")
    good_shard(tmp_path / "raw/gone.tar")
    unsafe: set[str] = set()
    with dg.DagsterInstance.ephemeral() as instance:
        register_all(instance, settings.storage)
        (tmp_path / "raw/gone.tar").unlink()  # its step fails, and its status note is published
        storage = instance.event_log_storage
        for name in dir(storage):
            if name.startswith(("get_", "store_", "fetch_", "has_")) and callable(getattr(storage, name)):
                monkeypatch.setattr(storage, name, noting(name, getattr(storage, name), unsafe))
        definitions = build_definitions(settings)
        for job, tags in ((BRING_UP_TO_DATE, {RANGE_START: "a", RANGE_END: "gone"}), (DAILY_REPORT, {})):
            definitions.resolve_job_def(job).execute_in_process(instance=instance, tags=tags, raise_on_error=False)
        assert instance.get_materialized_partitions(AssetKey("final_tars")) == {"a"}
        assert instance.get_latest_materialization_event(AssetKey("dataset_report")) is not None
    assert unsafe == set()


def noting(name: str, used: Any, unsafe: set[str]) -> Any:
    """``used``, which notes calls where the handler of Dagster is set that raises between any two instructions."""

    def use(*args: Any, **kwargs: Any) -> Any:
        if "raise_interrupts_as" in getattr(signal.getsignal(signal.SIGINT), "__qualname__", ""):
            callers = [
                frame.name for frame in traceback.extract_stack() if "/interleaved_assets/defs/" in frame.filename
            ]
            unsafe.add(f"{name} from {callers[-1:]}")
        return used(*args, **kwargs)

    return use
