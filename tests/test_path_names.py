"""Names in paths: each arrives as the one that was meant, or is refused."""

import pytest
from yarl import URL

from partq.errors import BadRequestError
from partq.path_names import check_path_name, quoted

UNUSABLE = ["", ".", "..", "a\nb", "\x00", "\x7f", "\ud800"]


@pytest.mark.parametrize("name", ["a", "...", ".a", "a/b", "../x", "a b", "%2e%2e", "ä?#", "a;b"])
def test_a_name_is_one_part_of_a_path(name):
    url = URL(f"http://b/v1/groups/{quoted(name, 'group')}/pull")
    assert url.parts == ("/", "v1", "groups", name, "pull")


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_name_that_would_not_arrive_is_refused(name):
    for use in (quoted, check_path_name):
        with pytest.raises(BadRequestError) as caught:
            use(name, "group")
        said = f"group {name!r}; expected printable characters, other than . and .."
        assert caught.value.message == said
