"""Archives of real queues: one for all tests, and a copy for each to change."""

import shutil

import pytest

from tests.pipeline.audit.content.real_archive import Copy, make_archives


@pytest.fixture(scope="session")
def archives(tmp_path_factory):
    root = tmp_path_factory.mktemp("archives")
    make_archives(root / "orders", root / "others")
    return root


@pytest.fixture
def copy(archives, tmp_path):
    shutil.copytree(archives / "orders", tmp_path / "copy")
    return Copy(tmp_path / "copy")
