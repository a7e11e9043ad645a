"""How long callers wait before they repeat a call that Redis did not answer, as in a failover.

`store` repeats no call that may have done something: an answer that was lost says nothing of what
is stored, and each caller has its own way to ask again safely (the number of an append, of a book
or of an audit record; the attempt of a handoff). So the caller repeats it, in most cases by
`UntilAnswered` of `aio.py`, after a fixed gap and without a limit: until Redis answers, the broker
no longer owns the partition, or the process ends. Loops that look again anyway, as those of leases
and of the coordinator, have other gaps; every other failed call ends with its error.
"""

WRITE_RETRY_S = 0.05
"""Between tries of an append, a book, audit records or a commit: clients wait for each of them."""
READ_RETRY_S = 0.1
"""Between reads of the log for a flow, and between reads of Redis's clock."""
BIND_RETRY_S = 1.0
"""Between tries to bind a flow to one of its partitions."""
OPEN_RETRY_S = 0.5
"""Between tries to connect when a process starts."""
RETRY_AFTER_S = 0.1
"""What an error of an unanswered call advises as `retry_after_s`; brokers pass it on to clients."""
