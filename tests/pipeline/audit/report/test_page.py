"""The page of a faulty run: what it says, and how it looks in a real Chromium."""

import re

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from partq.pipeline.audit.job import PAGE
from partq.pipeline.audit.verdict import HandoffCount
from tests.broker.api.page.conftest import WAIT_MS
from tests.pipeline.audit.report.faulty_run import KILLED, SILENT, STALE, STALL_MS, WITHOUT_COMMIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)


async def test_there_is_a_line_for_each_cause_and_the_root_stands_first(report):
    rows = report.page().rows_of("severity")
    lines = [(row["partition"], row["what"].partition("\n")[0]) for row in rows]
    by_kind = {what: row for (_, what), row in zip(lines, rows, strict=True)}

    assert len(rows) < report.verdict.count("fault") / 10
    assert lines == [
        (SILENT, "duplicate without cause"),
        (WITHOUT_COMMIT, "missing commit"),
        (WITHOUT_COMMIT, "stale ack"),
    ]
    assert [row["mark"] for row in rows] == ["1", "2", "3"]
    assert by_kind["stale ack"]["count"] == str(STALE)
    assert by_kind["stale ack"]["owner"] == by_kind["missing commit"]["owner"]
    assert f"{STALE} findings" in by_kind["stale ack"]["what"]
    assert "30 more are in findings/" in by_kind["stale ack"]["what"]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", row["first seen"]) for row in rows)


async def test_the_time_without_a_delivery_is_in_page_and_verdict(report):
    longest, *others = report.json()["stalls"]
    shown = next(rows for rows in report.page().tables if "acknowledged meanwhile" in rows[0])

    assert longest["partition"] == KILLED
    assert STALL_MS < longest["length_ms"] < 2 * STALL_MS
    assert longest["length_ms"] == longest["until_ms"] - longest["from_ms"]
    assert longest["length_ms"] > max(each["length_ms"] for each in others)
    assert {each["partition"] for each in (longest, *others)} == {
        *("1.0", "1.1", KILLED, SILENT, WITHOUT_COMMIT)
    }
    assert shown[1][:3] == [KILLED, "workers", f"{longest['length_ms'] / 1000:.1f} s"]
    assert shown[1][-2:] == [f"a delivery to {longest['successor']}", "0"]


async def test_nobody_was_forced_by_a_first_assignment_or_a_last_release(report):
    counts = {(each.outcome, each.is_forced): each.count for each in report.verdict.handoffs}
    text = (report.folder / PAGE).read_text(encoding="utf-8")
    graceful, forced = counts["commit", False], counts["commit", True]

    assert counts["assignment", False] == 5
    assert ("assignment", True) not in counts
    assert forced == 1
    assert f"Pauses of {graceful} graceful and {forced} forced handoffs" in text
    assert f">graceful: {graceful}<" in text
    assert f">forced: {forced}<" in text
    assert f"{forced} had no pause" in text
    told = HandoffCount("workers", "release", False, 1, 1, 9, 9, 0, None)
    assert told.text == "given back, nobody got it"


async def test_what_came_again_without_a_cause_is_alarming_and_causes_are_told_in_words(report):
    page = report.page()
    rows = next(rows for rows in page.tables if "what had happened" in rows[0])
    text = (report.folder / PAGE).read_text(encoding="utf-8")

    assert [row[1:3] for row in rows[1:]] == [
        ["no cause", "nothing that is recorded"],
        ["forced commit", "the partition was handed over without a drain"],
    ]
    assert 'class="alarm"' in text


async def test_in_a_browser(report, open_page):
    """Light, dark and narrow: nothing is fetched, nothing sticks out, axe has no objection."""
    page = await open_page(report.folder.as_uri(), hash_=PAGE, color_scheme="light")
    fetched = []
    page.on("request", lambda request: fetched.append(request.url))
    await page.reload()
    grounds = set()
    for scheme, width in (("light", 1280), ("dark", 400)):
        await page.emulate_media(color_scheme=scheme)
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        found = await Axe().run(page)
        assert [(each["id"], each["nodes"]) for each in found.response["violations"]] == []
    assert len(grounds) == 2
    assert fetched == [(report.folder / PAGE).as_uri()]

    folded = page.locator("details", has_text=f"{STALE} findings").last
    stale = folded.get_by_role("listitem")
    await expect(stale.first).to_be_hidden()
    await folded.locator("summary").press("Enter")
    await expect(stale).to_have_count(10)
    await expect(stale.first).to_be_visible()
    drawing = page.get_by_role("img", name=re.compile("Owner of each of 5 partitions.*3 findings"))
    await expect(drawing.locator("text", has_text="2-3")).to_have_count(1)
