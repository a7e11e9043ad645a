"""The looks of a broker that are repeated each second."""

import asyncio
from types import SimpleNamespace

import pytest

from partq.broker.retention.periodic_work import work_periodically
from partq.errors import StoreUnavailableError


async def test_a_look_that_fails_ends_the_other_looks_and_is_reported():
    """Else they would continue in a broker that nobody can rely on any more."""
    under_way, ended = asyncio.Event(), asyncio.Event()

    async def nothing():
        pass

    async def lasts():
        under_way.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fails():
        await under_way.wait()
        raise ZeroDivisionError("a defect")

    looking = work_periodically(
        nothing,
        quota=SimpleNamespace(refresh=fails),
        flow_registry=SimpleNamespace(flows=[]),
        expiry=SimpleNamespace(expire=nothing),
        trimmer=SimpleNamespace(trim=lasts),
        audit_backlog=SimpleNamespace(measure=nothing),
        measure_scheduled=nothing,
        is_ready=lambda: True,
    )
    with pytest.raises(ExceptionGroup) as found:
        await looking
    assert [str(each) for each in found.value.exceptions] == ["a defect"]
    assert ended.is_set()


async def test_a_look_that_redis_does_not_answer_is_logged_under_its_own_name(caplog):
    """Who reads the log at night has to know whether settings, a quota or trimming stand still."""
    caplog.set_level("WARNING", "partq.broker")
    looks = ("settings", "expiry", "quota", "trimming", "audit backlog", "scheduled messages")
    failed = {name: asyncio.Event() for name in looks}

    def fails(name):
        async def look():
            failed[name].set()
            raise StoreUnavailableError(f"no answer to {name}")

        return look

    working = asyncio.create_task(
        work_periodically(
            fails("settings"),
            quota=SimpleNamespace(refresh=fails("quota"), is_store_overfull=False),
            flow_registry=SimpleNamespace(flows=[]),
            expiry=SimpleNamespace(expire=fails("expiry")),
            trimmer=SimpleNamespace(trim=fails("trimming")),
            audit_backlog=SimpleNamespace(measure=fails("audit backlog")),
            measure_scheduled=fails("scheduled messages"),
            is_ready=lambda: True,
        )
    )
    try:
        for each in failed.values():
            await each.wait()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    logged = {record.getMessage() for record in caplog.records}
    assert logged == {f"the look {name!r} failed: no answer to {name}" for name in looks}
