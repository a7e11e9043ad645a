"""What the oracle knows of a group's place in a partition."""

from partq.lab.simulate.oracle.facts import GROUP, GroupPartitionFacts, LogFacts


def test_messages_that_the_store_has_forgotten_are_not_of_one_key():
    log = LogFacts("1.0", b"meta", b"log", ids=[100, 101, 102], slots=[7, 7, 8])
    facts = GroupPartitionFacts("1.0", log, GROUP, b"cursor", set(), is_there=True)
    assert facts.place_of(0) == facts.place_of(1) != facts.place_of(2)
    log.cut(0)
    assert len({facts.place_of(offset) for offset in range(3)}) == 3
