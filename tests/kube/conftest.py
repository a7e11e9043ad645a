"""What tests of the operator's parts ask for: Kubernetes's API in memory, and a clock."""

import pytest

from tests.kube.fake_api import FakeApi
from tests.kube.played_clock import Clock


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
def clock():
    return Clock()
