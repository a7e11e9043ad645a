"""`helm upgrade` from the release before this one, under load: brokers restart, nothing moves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import earlier, manifests
from e2e.images import EARLIER_IMAGE
from e2e.release import Release
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_an_upgrade_moves_no_partition(release: Release, before: Release) -> None:
    # Producers and consumers are upgraded after what they talk to: here, not at all.
    with Stage(release.cluster, "upgrade", before.image) as stage:
        stage.open(rebalance=manifests.PATIENT)
        moves = stage.moves()
        assert images(stage) == {before.image}

        release.install()
        stage.eventually(lambda: images(stage) == {release.image}, "brokers of the new image")
        stage.await_brokers(2)
        stage.await_shared(2)
        stage.await_traffic()

        assert stage.moves() == moves
        stage.close()


@pytest.fixture
def before(release: Release, tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Release]:
    """Return the release before this one, installed; it is this one again at the end."""
    try:
        earlier.unpack(pytestconfig.rootpath, tmp_path)
    except earlier.NoEarlierError as error:
        pytest.skip(str(error))
    found = Release(release.cluster, tmp_path, EARLIER_IMAGE)
    found.load_project()
    if found.image == release.image:
        pytest.skip("this cluster has one image only, that of E2E_IMAGE")
    try:
        found.install()
        yield found
    finally:
        release.install()


def images(stage: Stage) -> set[str]:
    """Return the images of the brokers."""
    pods = stage.get("pods", "--selector=app.kubernetes.io/component=broker")["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods}
