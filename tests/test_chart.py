"""The chart carries the same resource kinds as `crds/`."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KINDS = sorted(path.name for path in (ROOT / "crds").glob("*.yaml"))


@pytest.mark.parametrize("name", KINDS)
def test_the_chart_has_the_same_text(name):
    """`partq crds` writes one, a copy serves the other; neither is edited."""
    chart = ROOT / "charts" / "partq" / "files" / "crds"
    assert (chart / name).read_text() == (ROOT / "crds" / name).read_text()


def test_the_chart_has_no_other_kinds():
    """A kind that is gone from `crds/` is gone from the chart."""
    chart = ROOT / "charts" / "partq" / "files" / "crds"
    assert sorted(path.name for path in chart.iterdir()) == KINDS
