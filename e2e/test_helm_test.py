"""`helm test`: what the chart brings to try a release with."""

import pytest

from e2e.release import NAME, NAMESPACE, Release

pytestmark = pytest.mark.timeout(600)


def test_helm_test_publishes_consumes_and_hands_over(release: Release) -> None:
    release.cluster.helm("test", NAME, "--namespace", NAMESPACE, "--timeout", "200s")

    left = release.kubectl("get", "pq,cg,pod", "--selector=app.kubernetes.io/name=partq-test")
    assert not left.strip()
