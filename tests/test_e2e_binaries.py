"""Which programs of Kubernetes are built when: the tests need one of them, a cluster all."""

import os

import pytest

from e2e.cluster import binaries, debian

MAKEFILE = """
all:
\tmkdir -p _output/bin
\techo $(WHAT) > _output/bin/$(notdir $(WHAT))
\tchmod +x _output/bin/$(notdir $(WHAT))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a cache whose source is a tree that is made quickly; nothing is installed."""
    folder = tmp_path / "kubernetes-1.20.2" / "bin"
    tree = folder.parent / "build" / "tree"
    tree.mkdir(parents=True)
    (tree / "Makefile").write_text(MAKEFILE)
    (tree.parent / "prepared").touch()
    monkeypatch.setattr(debian, "require", lambda: None)
    monkeypatch.setattr(debian, "install", lambda packages: None)
    monkeypatch.setattr(debian, "archive", lambda: "http://archive.invalid")

    def unpack(package, files, into):
        for file in files:
            (into / os.path.basename(file)).touch()

    monkeypatch.setattr(debian, "unpack", unpack)
    return folder


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_the_tests_have_the_api_server_built_alone(tmp_path, folder):
    assert binaries.api_server({"PARTQ_CACHE": str(tmp_path)}) == folder
    assert names(folder) == {"etcd", "kube-apiserver"}
    assert (folder / "kube-apiserver").read_text() == "cmd/kube-apiserver\n"
    assert (folder.parent / "build" / "prepared").exists(), "a cluster builds the others in it"


def test_a_cluster_has_the_rest_built_in_the_same_tree(tmp_path, folder):
    binaries.api_server({"PARTQ_CACHE": str(tmp_path)})
    built = (folder / "kube-apiserver").stat().st_mtime_ns
    for name in ("pause", "helm"):  # one needs Go, the other npm
        (folder / name).touch(mode=0o755)
    assert binaries.ensure({"PARTQ_CACHE": str(tmp_path)}) == folder
    assert set(binaries._BUILT) <= names(folder)
    assert (folder / "kube-apiserver").stat().st_mtime_ns == built
    assert not (folder.parent / "build").exists(), "nothing more is built of it"


def test_what_is_there_is_not_built_again(tmp_path, folder, monkeypatch):
    """Also in a cache that holds all of them, as earlier versions left it."""
    folder.mkdir()
    for name in (*binaries._BUILT, "etcd", "helm"):
        (folder / name).touch()

    def fail(*_, **__):
        raise AssertionError("built")

    monkeypatch.setattr(binaries, "run_long", fail)
    assert binaries.api_server({"PARTQ_CACHE": str(tmp_path)}) == folder
    assert binaries.helm({"PARTQ_CACHE": str(tmp_path)}) == folder / "helm"
