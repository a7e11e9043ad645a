"""A broker process that does not say that it knows changes of the partition count.

    python -m tests.embedded.earlier_broker broker

Versions before these changes wrote no features into their leases. All else is of today.
"""

from partq.cli.main import main
from partq.store.records import leases

leases.LEASE_FEATURES = ()

if __name__ == "__main__":
    main()
