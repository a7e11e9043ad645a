"""The files of the page as a broker serves them: to everybody, with headers that bind a browser."""

import re

import pytest

from partq.broker.api.page.routes import CONTENT_TYPES, INDEX, page_files


async def get(running, path):
    async with running.session.get(running.url + path) as response:
        return response, await response.text()


async def test_the_page_names_its_queue_and_allows_nothing_inline(running):
    response, text = await get(running, "/")
    assert (response.status, response.content_type) == (200, "text/html")
    assert '<meta name="partq-queue" content="orders">' in text
    assert "{{" not in text
    policy = dict(
        each.strip().split(" ", 1)
        for each in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert {policy[each] for each in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"


async def test_a_name_of_a_queue_is_text_in_the_page(running):
    object.__setattr__(running.broker.settings, "queue", '"><script>')
    _, text = await get(running, "/")
    assert "<script>" not in text
    assert "&quot;&gt;&lt;script&gt;" in text


@pytest.mark.parametrize("name", sorted({*page_files()} - {INDEX}))
async def test_each_file_has_its_type(running, name):
    response, text = await get(running, f"/page/{name}")
    assert (response.status, response.content_type) == (200, CONTENT_TYPES[name.split(".")[-1]])
    assert text == page_files()[name]
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize("name", ["nothing.js", "index.html", "..%2Froutes.py", "routes.py"])
async def test_another_file_is_not_found(running, name):
    async with running.session.get(f"{running.url}/page/{name}") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "not_found"


def test_files_name_no_other_host_and_set_no_html():
    for name, text in page_files().items():
        hosts = set(re.findall(r"https?://[\w.-]+", text)) - {"http://www.w3.org"}
        assert not hosts, f"{name}: {hosts}"
        if name.endswith(".js"):
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write", text
            )
        if name == INDEX:
            assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?! type=\"module\" src=)", text)
