"""Processes in Python that Spark starts import what is installed."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _python(spark_python: None) -> None:
    """Apply to every test of the folder: some start Spark as a program."""
