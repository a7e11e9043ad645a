"""The columns that the audit reads and writes, and the words of its findings."""

from typing import Final

import pyarrow as pa

FAULT: Final = "fault"
WARNING: Final = "warning"
INFORMATION: Final = "information"

KINDS: Final = {
    **dict.fromkeys(
        (
            *("missing_range", "missing_record", "recorded_twice", "no_record"),
            *("changed_group", "broken_link", "forked_chain"),
            *("two_owners", "two_flows", "two_brokers", "epoch_not_raised"),
            *("slot_shared", "message_shared", "session_shared", "outside_lock", "lock_not_raised"),
            *("registered_while_held", "bind_not_held", "commit_not_held"),
            *("stale_ack", "ack_not_delivered", "ack_before_delivery", "ack_of_other_token"),
            *("ack_not_held", "acked_twice"),
            *("out_of_order", "redelivered_out_of_order", "skipped_ahead"),
            *("lost", "delivered_unpublished"),
            *("duplicate_without_cause", "unfounded_cause", "delivered_after_ack"),
            *("published_twice", "no_publish", "not_archived", "archived_not_published"),
            *("archived_twice", "other_archived", "number_stored_twice", "number_skipped"),
            *("handoff_without_end", "commit_without_pause", "commit_without_drain"),
            "missing_commit",
            *("drain_not_clean", "delivered_while_paused"),
            *("slot_not_taken", "published_before_open", "opened_before_seal"),
            *("slot_covered_twice", "delivered_before_gate", "gate_too_early"),
            *("content_differs", "wrong_slot", "wrong_publish_time", "other_queue"),
            *("missing_partition", "head_not_found", "messages_cut_off"),
            *("missing_entry", "damaged_entry", "outside_root", "wrong_columns"),
            *("missing_file", "changed_file", "unreadable_file", "other_rows"),
        ),
        FAULT,
    ),
    "archive_gap": WARNING,
    "archive_undecodable": WARNING,
    "archive_behind": WARNING,
    "record_behind": WARNING,
    # Clocks of machines differ: a Redis that takes over may be behind the one before.
    "time_went_back": WARNING,
    "archive_begins_late": INFORMATION,
    "content_not_recorded": INFORMATION,
    "extent_not_recorded": INFORMATION,
    "handoff_under_way": INFORMATION,
    "not_recorded": INFORMATION,
}
"""Every kind of finding, and how severe it is; no check can report another."""

FINDINGS: Final = pa.schema(
    [
        ("check", pa.string()),
        ("what", pa.string()),
        ("severity", pa.string()),
        ("partition", pa.string()),
        ("group", pa.string()),
        ("sequence", pa.int64()),
        ("at_ms", pa.int64()),
        ("first", pa.int64()),
        ("stop", pa.int64()),
        ("key", pa.string()),
        ("member", pa.string()),
        ("broker_epoch", pa.int64()),
        ("epoch", pa.int64()),
        ("attempt", pa.int64()),
        ("detail", pa.string()),
    ]
)
"""A finding. It concerns the offsets `[first, stop)`. Null where there is no such thing.

`sequence` and `at_ms` are of the record's group that shows it."""

DUPLICATES: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("group", pa.string()),
        ("cause", pa.string()),
        ("messages", pa.int64()),
        ("event", pa.string()),
        ("event_sequence", pa.int64()),
        ("event_ms", pa.int64()),
        ("attempt", pa.int64()),
        ("broker", pa.string()),
        ("member", pa.string()),
        ("target", pa.string()),
    ]
)
"""Messages that a group got again for one cause, and the event that this goes back to."""

HANDOFFS: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("group", pa.string()),
        ("attempt", pa.int64()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("epoch", pa.int64()),
        ("paused_ms", pa.int64()),
        ("drained_ms", pa.int64()),
        ("ended_ms", pa.int64()),
        ("outcome", pa.string()),
        ("cause", pa.string()),
        ("drain_cause", pa.string()),
        ("sequence", pa.int64()),
        ("messages_cut", pa.int64()),
        ("keys_continued", pa.int64()),
    ]
)
"""An attempt to hand a partition over.

`outcome` is `commit`, `cancel`, `lapse`, `broker_change`, `under_way`, `no_end`, `gone` (the group
was removed) or `not_known` (the record has a gap); `cause`: why a commit was forced; `epoch`: the
new one.
"""
