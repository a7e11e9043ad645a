"""The operator as it runs, against a real API server; pods are played by the tests."""

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from partq.resources.crds import CRDS, without_new_rules
from partq.testing.redis_server import RedisServer
from tests.kube.api_server.api_server import ApiServer, MissingError, find_programs
from tests.kube.api_server.client import Kube
from tests.kube.api_server.processes import eventually
from tests.kube.api_server.stage import Stage

REQUIRED = "PARTQ_REQUIRE_APISERVER"
KNOWS_ALL_RULES = (1, 30)
"""The first version that takes the definitions as they are."""


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Kubernetes's API with our definitions, for all tests of a worker."""
    try:
        programs = find_programs()
    except MissingError as error:
        if os.environ.get(REQUIRED) == "1" or os.environ.get("CI") == "true":
            pytest.fail(f"{error} ({REQUIRED}=1 or CI=true: no skipping)")
        pytest.skip(str(error))
    with ApiServer(programs, tmp_path_factory.mktemp("kubernetes")) as server:
        define_resources(server)
        yield server


@pytest.fixture(scope="module")
def stage(
    api_server: ApiServer,
    redis_server: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Stage]:
    """A namespace for the tests of one file."""
    name = Path(str(request.path)).stem.removeprefix("test_").replace("_", "-")
    with Stage(
        api_server,
        name,
        redis_url=redis_server.url,
        prefix=f"kube-{name}"[:32].rstrip("-"),
        folder=tmp_path_factory.mktemp(name),
    ) as stage:
        yield stage
        stage.check_operators()


@pytest.fixture
def group(stage: Stage, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a name that no other test of the file has; its consumers end with the test."""
    name = str(request.node.name)
    with stage.consumers():
        yield name.removeprefix("test_").replace("_", "-")[:40].strip("-")


def define_resources(server: ApiServer) -> None:
    """Apply the definitions, and wait until the server knows them."""
    with closing(server.client()) as kube:
        version = kube.call("GET", "/version")
        is_new = (int(version["major"]), int(version["minor"].rstrip("+"))) >= KNOWS_ALL_RULES
        for make in CRDS.values():
            kube.create(make() if is_new else without_new_rules(make()))
        for make in CRDS.values():
            name = make()["metadata"]["name"]
            eventually(partial(is_established, kube, name), f"the kind {name}")


def is_established(kube: Kube, name: str) -> bool:
    """Say whether the server serves a kind."""
    found = kube.get("CustomResourceDefinition", None, name)
    # A server that is busy shows a kind first with `conditions: null`.
    conditions = (found or {}).get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)
