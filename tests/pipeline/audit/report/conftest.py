"""The report of a faulty run, and the browser that the broker's page is tested in."""

from pathlib import Path

import pytest

from tests.broker.api.page.conftest import browser, open_page
from tests.pipeline.audit.report.faulty_report import FaultyReport

__all__ = ["browser", "open_page"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> FaultyReport:
    """What the audit writes of a faulty run."""
    return FaultyReport.write(Path(tmp_path_factory.mktemp("faulty")))
