"""Both kinds of files keep the same promises: this machine's, and those of Hadoop."""

import threading
from hashlib import sha256

import pytest

from partq.errors import SettingsError
from partq.pipeline.storage.files import open_files, open_local_files
from partq.pipeline.storage.hadoop_files import HadoopFiles
from partq.pipeline.storage.local_files import LocalFiles


@pytest.fixture(params=["local", "hadoop"])
def files(request, tmp_path):
    if request.param == "local":
        return LocalFiles(str(tmp_path))
    return HadoopFiles(request.getfixturevalue("spark"), tmp_path.as_uri())


def test_a_file_is_made_once(files):
    assert files.read("log/1.json") is None
    assert files.create("log/1.json", b"first")
    assert not files.create("log/1.json", b"second")
    assert files.read("log/1.json") == b"first"
    assert files.names("log") == ["1.json"]
    assert files.names("nothing") == []


def test_a_file_is_moved_and_found(files):
    files.create("staging/a b/1.3/x.parquet", b"12345")
    files.move("staging/a b/1.3/x.parquet", "messages/d=1/y.parquet")

    [(path, size, modified_ms)] = files.walk("messages")
    assert (path, size) == ("messages/d=1/y.parquet", 5)
    assert modified_ms > 0
    assert files.walk("staging") == []
    assert files.walk("nothing") == []
    assert files.read("staging/a b/1.3/x.parquet") is None


def test_a_digest_is_of_all_bytes_of_a_file(files):
    data = bytes(range(256)) * 5000
    files.create("messages/a b.parquet", data)
    assert files.digest("messages/a b.parquet") == sha256(data).hexdigest()
    assert files.digest("messages/nothing.parquet") == ""


def test_files_and_folders_are_removed_and_a_repeat_is_fine(files):
    files.create("staging/a/x", b"1")
    files.create("staging/a/b/y", b"1")
    for _ in range(2):
        files.remove("staging/a/x")
        files.remove("staging/a")
    assert files.walk("staging") == []


def test_drafts_of_crashes_are_not_seen(files, tmp_path):
    files.create("log/1.json", b"{}")
    (tmp_path / "log" / ".2.json.abc").write_bytes(b"{")
    assert files.names("log") == ["1.json"]
    assert [path for path, _, _ in files.walk("log")] == ["log/1.json"]


def test_what_does_not_work_is_a_sentence_with_the_path(files, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SettingsError, match="file/1"):
        files.create("file/1", b"")


def test_of_many_that_make_one_file_one_succeeds(tmp_path):
    files = LocalFiles(str(tmp_path))
    made = []
    start = threading.Barrier(8)

    def make(number):
        start.wait()
        if files.create("log/1.json", str(number).encode()):
            made.append(number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(number).encode() for number in made] == [files.read("log/1.json")]


def test_the_root_says_which_kind(spark, tmp_path):
    for root in (str(tmp_path), tmp_path.as_uri()):
        files = open_files(spark, root)
        assert isinstance(files, LocalFiles)
        assert files.url("a b/c") == f"file://{tmp_path}/a b/c"


@pytest.mark.parametrize(
    ("root", "sentence"),
    [
        ("", "expected a path or a URL"),
        ("a\nb", "expected a path or a URL"),
        ("/data/[x]", "takes for a pattern"),
        ("nope://bucket/x", 'No FileSystem for scheme "nope"'),
        ("file://host/x", "expected file:///PATH"),
    ],
)
def test_a_root_that_cannot_be_is_a_sentence(spark, root, sentence):
    with pytest.raises(SettingsError, match=sentence):
        open_files(spark, root)


def test_without_spark_a_path_is_the_same_and_a_url_names_the_other_engine(tmp_path):
    for root in (str(tmp_path), tmp_path.as_uri()):
        assert open_local_files(root).root == str(tmp_path)
    with pytest.raises(SettingsError, match=r"s3a://lake/orders: got a URL.*use --engine spark"):
        open_local_files("s3a://lake/orders")
    with pytest.raises(SettingsError, match="takes for a pattern"):
        open_local_files("/data/[x]")
