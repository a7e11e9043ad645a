"""The opener of new partitions: what a look costs where many of them wait."""

from types import SimpleNamespace

from partq.broker.rescale.partition_opener import PartitionOpener
from partq.core.layout import Layout
from partq.core.rescale.layout_steps import commit, prepare
from partq.store.records.layout.seals import PredecessorSeal

COUNT = 64


class Waiting:
    """A partition that is not open yet."""

    layout = SimpleNamespace(is_open=False)

    def __init__(self, partition):
        self.id = partition


class CountedSeals(dict):
    """Seals as they were read; counts how many are looked at."""

    looked_at = 0

    def items(self):
        for each in super().items():
            self.looked_at += 1
            yield each

    def __getitem__(self, name):
        self.looked_at += 1
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.looked_at += 1
        return super().get(name, default)


async def test_a_look_reads_each_seal_once():
    """Twice as many partitions are twice the work, while publishes wait on the same loop."""
    layout = commit(prepare(Layout.first(COUNT), COUNT // 2), 1)
    found = CountedSeals()

    async def read_seals(names):
        found.update((each, PredecessorSeal(None, 0)) for each in names)
        return found

    owned = {each: Waiting(each) for each in layout.lineage}
    opener = PartitionOpener(
        SimpleNamespace(read_seals=read_seals),
        owned=owned,
        layout=lambda: layout,
        on_open=None,
        on_lost=None,
        on_pause=None,
        clock=None,
        spawn=None,
    )
    await opener._look(list(owned.values()))
    assert len(found) >= COUNT // 2
    assert found.looked_at <= 2 * len(found)
