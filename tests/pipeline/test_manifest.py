"""What an archive consists of follows from its entries, and from nothing else."""

import json

import pytest

from partq.errors import InternalError
from partq.pipeline.manifest import (
    ArchiveGap,
    ArchivePosition,
    ArchiveState,
    DataFile,
    ManifestEntry,
    select,
)


def file(name, partition="1.0", first=0, stop=10, *, stream="messages", at_ms=(0, 9)):
    path = f"{stream}/date=1970-01-01/queue_partition={partition}/{name}.parquet"
    rows = stop - first
    return DataFile(path, stream, partition, first, stop, rows, 100 * rows, *at_ms)


def entry(number, **fields):
    return ManifestEntry(
        number=number, attempt=f"a{number}", kind="archive", at_ms=1000 * number, **fields
    )


A, B, MERGED = file("a"), file("b", first=10, stop=20), file("merged", stop=20)
ENTRIES = [
    entry(
        1,
        added=(A,),
        positions={"messages": {"1.0": ArchivePosition(10, 7)}},
        beginnings={"messages": {"1.0": 0}},
    ),
    entry(
        2,
        added=(B,),
        positions={"messages": {"1.0": ArchivePosition(20, 7), "1.1": ArchivePosition(0)}},
    ),
    entry(
        3, added=(MERGED,), removed=(A.path, B.path), gaps=(ArchiveGap("messages", "1.1", 0, 5),)
    ),
    entry(4, deleted=(A.path,)),
]


def state_after(entries):
    state = ArchiveState()
    for each in entries:
        state.apply(each)
    return state


def test_files_positions_and_gaps_follow_from_the_entries():
    state = state_after(ENTRIES)

    assert state.files == {MERGED.path: MERGED}
    assert state.removed == {B.path: 3000}
    assert state.positions == {
        "messages": {"1.0": ArchivePosition(20, 7), "1.1": ArchivePosition(0)}
    }
    assert state.gaps == [ArchiveGap("messages", "1.1", 0, 5)]


def test_partitions_and_the_queue_are_known_from_every_entry():
    """So no single entry that is lost or changed makes a partition unknown."""
    first, both = {"messages": {"1.0": 0}}, {"messages": {"1.0": 0, "1.1": 7}}
    entries = [
        entry(1, beginnings=first, uid="0a"),
        entry(2),
        entry(3, beginnings=both, uid="0a"),
        entry(4, beginnings={"audit": {"1.0": 2}}, uid="0a"),
    ]
    state = state_after(entries)

    assert state.beginnings == {**both, "audit": {"1.0": 2}}
    assert state.uids == ["0a"]
    for each in entries:
        assert ManifestEntry.from_json("n", each.to_json()) == each
    assert ArchiveState.from_json("n", state.to_json()) == state


def test_entries_of_an_earlier_version_are_read():
    """They know neither digests nor beginnings."""
    body = json.loads(entry(1, added=(A,)).to_json())
    del body["beginnings"], body["uid"], body["added"][0]["sha256"]
    state = json.loads(state_after([entry(1, added=(A,))]).to_json())
    del state["beginnings"], state["uids"]

    assert ManifestEntry.from_json("n", json.dumps(body).encode()) == entry(1, added=(A,))
    read = ArchiveState.from_json("n", json.dumps(state).encode())
    assert (read.files, read.beginnings, read.uids) == ({A.path: A}, {}, [])


@pytest.mark.parametrize(
    "fields",
    [
        {"added": (file("a", "x"),)},
        {"gaps": (ArchiveGap("audit", "1", 0, 5),)},
        {"positions": {"messages": {"1.x": ArchivePosition(10, 7)}}},
        {"beginnings": {"messages": {"01.0": 0}}},
    ],
)
def test_an_entry_that_names_what_is_no_partition_is_damaged(fields):
    with pytest.raises(InternalError, match=r"log/1: is damaged .* expected GENERATION\.INDEX"):
        ManifestEntry.from_json("log/1", entry(1, **fields).to_json())


def test_only_a_gap_of_undecodable_messages_is_new_to_earlier_versions():
    """They take no other field: what they would misread, they refuse."""
    known = {"stream", "partition", "first", "stop"}
    lost, kept = (
        ArchiveGap("messages", "1.0", 0, 5),
        ArchiveGap("messages", "1.0", 7, 8, "u/a.batch"),
    )
    stored = entry(1, gaps=(lost, kept))
    written = json.loads(stored.to_json())["gaps"]
    assert [each.keys() - known for each in written] == [set(), {"undecodable_path"}]
    assert ManifestEntry.from_json("n", stored.to_json()) == stored
    state = state_after([stored])
    assert json.loads(state.to_json())["gaps"] == written
    assert ArchiveState.from_json("n", state.to_json()) == state
    outside = entry(1, gaps=(ArchiveGap("messages", "1.0", 7, 8, "../a.batch"),))
    with pytest.raises(InternalError, match="expected one below ROOT"):
        ManifestEntry.from_json("n", outside.to_json())


def test_entries_and_states_are_stored_as_they_are():
    for each in ENTRIES:
        assert ManifestEntry.from_json("n", each.to_json()) == each
    state = state_after(ENTRIES)
    assert ArchiveState.from_json("n", state.to_json()) == state


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        pytest.param(entry(6), "entry 6 follows entry 4; expected 5", id="one is missing"),
        pytest.param(entry(4), "entry 4 follows entry 4; expected 5", id="one comes twice"),
        pytest.param(entry(5, removed=(A.path,)), "does not fit", id="removes what is not there"),
        pytest.param(entry(5, deleted=(A.path,)), "does not fit", id="deletes what is deleted"),
        pytest.param(entry(5, added=(MERGED,)), "does not fit", id="adds what is there"),
        pytest.param(
            entry(5, beginnings={"messages": {"1.0": 3, "1.1": 1}}),
            "at the beginning of partition 1.0: its log is damaged",
            id="begins elsewhere",
        ),
    ],
)
def test_entries_that_do_not_fit_are_refused(wrong, sentence):
    with pytest.raises(InternalError, match=sentence):
        state_after([*ENTRIES, wrong])


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"number": 1}', b"\xff"])
def test_what_is_no_entry_is_named(data):
    with pytest.raises(InternalError, match="log/1: is damaged"):
        ManifestEntry.from_json("log/1", data)
    with pytest.raises(InternalError, match="snapshots/1: is damaged"):
        ArchiveState.from_json("snapshots/1", data)


def test_files_are_chosen_by_what_they_may_hold_and_ordered():
    late = file("late", "1.10", at_ms=(100, 200))
    second = file("second", "1.2", at_ms=(10, 20))
    audit = file("audit", stream="audit")
    files = [late, second, B, audit, A]

    assert select(files, "messages") == [A, B, second, late]
    assert select(files, "audit") == [audit]
    assert select(files, "messages", partitions=["1.10", "1.2"]) == [second, late]
    assert select(files, "messages", from_ms=20) == [second, late]
    assert select(files, "messages", from_ms=21) == [late]
    assert select(files, "messages", until_ms=100) == [A, B, second]
    assert select(files, "messages", until_ms=101) == [A, B, second, late]
