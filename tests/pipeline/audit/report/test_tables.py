"""The tables of a report are as documented, and the documented lines open them."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyarrow import parquet

from partq.pipeline.audit.report.page import DUCKDB, SPARK
from partq.pipeline.audit.schema import DUPLICATES, FINDINGS, HANDOFFS

DOCUMENT = Path(__file__).parents[4] / "docs" / "audit-report.md"
TABLES = {"findings": FINDINGS, "duplicates": DUPLICATES, "handoffs": HANDOFFS}


def documented(title):
    """Return the rows of the table under a heading, the cells without their marks of code."""
    text = DOCUMENT.read_text(encoding="utf-8")
    part = text.partition(f"\n### {title}\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (.*) \|$", part, re.MULTILINE)[2:]
    return [[cell.strip() for cell in row.split("|")] for row in rows]


@pytest.mark.parametrize("name", TABLES)
def test_each_column_is_documented(name, report):
    rows = [(column.strip("`"), kind) for column, kind, *_ in documented(name)]

    assert rows == [(field.name, str(field.type)) for field in TABLES[name]]
    assert parquet.read_schema(next((report.folder / name).glob("*.parquet"))) == TABLES[name]


def test_each_field_of_the_verdict_is_documented(report):
    told = report.json()
    rows = {
        field: meaning
        for fields, meaning in documented("verdict.json")
        for field in re.findall(r"`(\w+)`", fields)
    }

    assert list(rows) == list(told)
    for name, value in told.items():
        one = value[0] if isinstance(value, list) else value
        if isinstance(one, dict) and name not in ("heads", "archived"):  # named by partitions
            assert set(one) <= set(re.findall(r"`(\w+)`", rows[name])), name


def test_the_document_has_the_lines_of_the_page(report):
    text = DOCUMENT.read_text(encoding="utf-8")
    page = (report.folder / "report.html").read_text(encoding="utf-8")

    assert f"\n{DUCKDB}\n" in text
    assert f"\n{SPARK}\n" in text
    assert "findings/*.parquet" in page


@pytest.mark.parametrize("name", TABLES)
def test_the_documented_line_opens_the_table(name, report):
    """With DuckDB where it is installed; else pyarrow reads what the line names."""
    query = re.search('"(.*)"', DUCKDB)[1]
    rows = sum(parquet.read_table(each).num_rows for each in (report.folder / name).iterdir())
    assert rows > 0
    if name == "findings" and find_spec("duckdb") is not None:
        program = f"import duckdb; print(len(duckdb.sql({query!r}).fetchall()))"
        said = subprocess.run(
            [sys.executable, "-c", program],
            cwd=report.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(said.stdout) == min(50, rows)
    else:
        pattern = re.search("'(.*)'", query)[1].replace("findings", name)
        files = [str(each) for each in report.folder.glob(pattern)]
        assert ds.dataset(files).count_rows() == rows
