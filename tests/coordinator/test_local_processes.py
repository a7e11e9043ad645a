"""Which callers may bind where members have no pods."""

import pytest

from partq.coordinator.local_processes import LocalProcesses


@pytest.mark.parametrize(
    ("address", "is_admitted"),
    [("127.0.0.1", True), ("::1", True), ("127.9.9.9", True), ("10.0.0.1", False), ("", False)],
)
def test_loopback_is_admitted(address, is_admitted):
    assert (LocalProcesses().refusal("g", "m", address) is None) is is_admitted
