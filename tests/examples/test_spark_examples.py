"""What the examples for Spark say of how they are run."""

import re
from pathlib import Path

import pytest

from partq.resources.reading import parse_resources

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["spark_read.py", "spark_write.py"])
def test_the_queue_of_the_header_has_the_group_that_it_names(name):
    header = (ROOT / "examples" / name).read_text(encoding="utf-8").partition("import ")[0]
    (file,) = re.findall(r"dev up -f (\S+)", header)
    groups = re.findall(r"--group (\S+)", header)
    resources = parse_resources((ROOT / file).read_text(encoding="utf-8"))
    assert [queue.metadata.name for queue in resources.queues] == ["orders"]
    assert {group.metadata.name for group in resources.groups}.issuperset(groups)
    assert "pip install -e " in header, "a copy would replace what `make setup` has installed"
