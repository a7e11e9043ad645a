"""Who leads: never two within their deadlines, and somebody soon after the last one is gone."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from partq.kube.errors import NotLeadingError
from partq.kube.leader import DEADLINE_S, LEASE_S, Leader
from partq.kube.reconcile.context import LeadersTerms

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/partq"


def leader(api, clock, name):
    return Leader(
        api,
        namespace="ops",
        name="partq",
        identity=name,
        clock=clock,
        now=lambda: datetime.fromtimestamp(clock.now, UTC),
        on_change=lambda: None,
        on_attempt=lambda: None,
    )


async def lead(leader):
    """Try once; return whether it leads."""
    await leader.attempt()
    return leader.is_leading


async def test_the_first_leads_and_the_second_waits(api, clock):
    one, two = leader(api, clock, "one"), leader(api, clock, "two")
    assert await lead(one)
    assert not await lead(two)
    assert api.objects[PATH]["spec"]["holderIdentity"] == "one"


async def test_a_holder_that_renews_stays(api, clock):
    one, two = leader(api, clock, "one"), leader(api, clock, "two")
    for _ in range(10):
        assert await lead(one)
        assert not await lead(two)
        clock.now += LEASE_S / 3
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 1


async def test_a_holder_that_is_silent_stops_before_another_begins(api, clock):
    one, two = leader(api, clock, "one"), leader(api, clock, "two")
    assert await lead(one)
    assert not await lead(two)
    clock.now += DEADLINE_S
    assert not one.is_leading
    assert not await lead(two), "its lease is not over"
    clock.now += LEASE_S - DEADLINE_S
    assert await lead(two)
    assert not await lead(one)
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 2


async def test_without_an_answer_nobody_leads_longer_than_the_deadline(api, clock):
    one = leader(api, clock, "one")
    assert await lead(one)
    api.broken.add(PATH)
    clock.now += DEADLINE_S / 2
    assert await lead(one)
    clock.now += DEADLINE_S / 2
    assert not await lead(one)


async def test_who_ends_gives_the_lease_back(api, clock):
    one, two = leader(api, clock, "one"), leader(api, clock, "two")
    assert await lead(one)
    await one.give_back()
    assert not one.is_leading
    assert await lead(two)


async def test_of_two_that_take_a_free_lease_one_leads(api, clock):
    one, two = leader(api, clock, "one"), leader(api, clock, "two")
    await asyncio.gather(lead(one), lead(two))
    assert [one.is_leading, two.is_leading].count(True) == 1


async def test_who_does_not_lead_begins_no_term():
    """It would end its successor's, late."""
    begun, leads = [], [True]

    async def begin(group):
        begun.append(group)

    terms = LeadersTerms(SimpleNamespace(begin=begin), lambda: leads[0])
    await terms.begin("workers")
    leads[0] = False
    with pytest.raises(NotLeadingError):
        await terms.begin("workers")
    assert begun == ["workers"]
