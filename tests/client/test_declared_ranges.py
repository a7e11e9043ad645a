"""Members that declare the slots that they want, with real brokers and a real coordinator."""

import asyncio

import pytest

from partq import Consumer, Producer
from partq.core.hashing import slot_of
from partq.errors import ConflictError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

STICKY = {"type": "KeyShared", "keyShared": {"parts": 4, "hashRange": "Sticky"}}
KEYS = [f"key-{number}" for number in range(40)]


@pytest.mark.req("PUL-128", "PUL-U05")
async def test_each_member_gets_the_keys_of_its_slots_and_a_hole_waits():
    async with LocalBroker(partitions=2, groups={"workers": STICKY}) as local:
        lanes = {"a": {}, "b": {}}

        def member(name, ranges, **more):
            return Consumer(
                local.url,
                queue="orders",
                group="workers",
                token=local.tokens.consume,
                member=name,
                ranges=ranges,
                handle_signals=False,
                **more,
            )

        async with (
            member("a", [(0, 16_384)], on_lanes=lanes["a"].__setitem__) as a,
            member("b", [(16_384, 49_152)], on_lanes=lanes["b"].__setitem__) as b,
            Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
        ):
            for key in KEYS:
                await producer.send_and_wait(key.encode(), key=key)
            expected = {"a": set(), "b": set(), "": set()}
            for key in KEYS:
                slot = slot_of(key)
                expected["a" if slot < 16_384 else "b" if slot < 49_152 else ""].add(key)
            assert all(expected.values())
            for name, consumer in (("a", a), ("b", b)):
                found = {(await anext(consumer)).key for _ in expected[name]}
                assert found == expected[name]
            await eventually(
                lambda: (
                    [pairs for _, pairs in sorted(lanes["b"].items())]
                    == [[(16_384, 32_768)], [(32_768, 49_152)]]
                ),
                "b is told its slots",
            )
            with pytest.raises(ConflictError, match="which b has"):
                async with member("c", [(32_768, 65_536)], connect_timeout_s=0.2) as c:
                    await asyncio.wait_for(anext(c), 20)
