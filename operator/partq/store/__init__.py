"""Redis, and all that knows it: the record, the log, leases, members, assignments."""
