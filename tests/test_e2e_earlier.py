"""Which commit an upgrade starts from, by the history that a checkout has."""

import os
import shutil
import subprocess

import pytest

from e2e import earlier

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


class History:
    """A repository of git."""

    def __init__(self, folder):
        self.folder = folder
        self.git("init", "--quiet")

    def git(self, *arguments):
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
        argv = ["git", "-C", str(self.folder), *identity, *arguments]
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        found = subprocess.run(argv, check=True, capture_output=True, timeout=60, env=env)
        return found.stdout.decode()

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def commit(self, path, text):
        self.write(path, text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--no-gpg-sign", "--message", f"{path}: {text}")
        return self.git("rev-parse", "HEAD").strip()


@pytest.fixture
def history(tmp_path):
    (tmp_path / "checkout").mkdir()
    return History(tmp_path / "checkout")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "before"
    folder.mkdir()
    return folder


def test_it_is_the_commit_before_the_last_that_changed_the_image_or_the_chart(history, folder):
    before = history.commit("operator/a.py", "1")
    history.commit("operator/a.py", "2")
    history.commit("docs/a.md", "of no matter")
    assert earlier.unpack(history.folder, folder) == before
    assert (folder / "operator" / "a.py").read_text() == "1"


def test_a_commit_in_between_is_taken_with_what_it_changed(history, folder):
    history.commit("operator/a.py", "1")
    between = history.commit("docs/a.md", "of no matter")
    history.commit("charts/a.yaml", "2")
    assert earlier.unpack(history.folder, folder) == between


def test_with_changes_that_are_not_committed_it_is_the_last_commit(history, folder):
    last = history.commit("operator/a.py", "1")
    history.write("operator/a.py", "2")
    assert earlier.unpack(history.folder, folder) == last
    assert (folder / "operator" / "a.py").read_text() == "1"


def test_a_history_that_ends_there_has_none(history, folder, tmp_path):
    history.commit("operator/a.py", "1")
    last = history.commit("operator/a.py", "2")
    shallow = tmp_path / "shallow"
    history.git("clone", "--quiet", "--depth=1", f"file://{history.folder}", str(shallow))
    with pytest.raises(earlier.NoEarlierError, match=f"the history ends at {last[:12]}"):
        earlier.unpack(shallow, folder)
    assert not list(folder.iterdir())


def test_the_repository_that_a_hook_of_git_names_is_left_alone(history, folder, monkeypatch):
    before = history.commit("operator/a.py", "1")
    history.commit("operator/a.py", "2")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert earlier.unpack(history.folder, folder) == before


def test_without_a_repository_there_is_none(tmp_path, folder):
    with pytest.raises(earlier.NoEarlierError, match="needs the history"):
        earlier.unpack(tmp_path, folder)
