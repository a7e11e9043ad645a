"""Files that `partq dev up` is given and that are no resources."""

import tracemalloc

import pytest

from partq.cli.hosting.dev import read_resources
from partq.errors import SettingsError

SIZE_BYTES = 256 * 1024 * 1024


def test_of_a_file_without_an_end_no_more_is_read_than_may_be_there(tmp_path):
    """Such as a disk image, or /dev/zero, which took all memory."""
    file = tmp_path / "image"
    with file.open("wb") as stream:
        stream.truncate(SIZE_BYTES)
    tracemalloc.start()
    try:
        with pytest.raises(SettingsError) as caught:
            read_resources(file)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < SIZE_BYTES // 4
    assert caught.value.message.startswith(f"{file}: got more than ")
    assert "expected at most" in caught.value.message
