"""Commands, manifests and JSON of README.md and docs/ are such as the programs take."""

import ast
import inspect
import json
import re
import shlex

import click
import pytest
import yaml

from partq.cli.commands import cli
from partq.core.views.rescale_status import RescaleStatus
from partq.resources import API_VERSION, queue_document, resources_of
from partq.wire.calls import answers, browse, registration, scheduled, status
from partq.wire.calls.group import removal
from tests.examples.pages import ROOT, blocks

VALUES = json.loads((ROOT / "charts/partq/values.schema.json").read_text(encoding="utf-8"))
MAKE = (ROOT / "Makefile").read_text(encoding="utf-8")


def commands():
    """Return each command line of the blocks of shells, with its place."""
    found = []
    for block in blocks("", "sh"):
        text = re.sub(r"\\\n *", "", block.text)
        lines = text.splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        for line in lines:
            # Two spaces, or a #, begin what a command does.
            said = re.split(r" {2,}| #", line)[0]
            found += [
                pytest.param(shlex.split(part), id=f"{block.place} {part.strip()[:60]}")
                for part in said.split(" | ")
                if re.match(r" *(\.venv/bin/partq|partq|make|kubectl|helm|docker) ", part + " ")
            ]
    return found


@pytest.mark.parametrize("words", [each for each in commands() if "partq" in each.values[0][0]])
def test_partq_takes_the_command(words, monkeypatch, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "events.ndjson").touch()
    monkeypatch.chdir(tmp_path)
    command, words = cli, words[1:]
    # A group with words that are options alone is a command itself, as `partq partitions`.
    while isinstance(command, click.Group) and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(click.Context(command), name)
    command.make_context(name, words)


@pytest.mark.parametrize("words", [each for each in commands() if each.values[0][0] == "make"])
def test_make_has_the_target(words):
    assert re.search(rf"^{words[1]}:", MAKE, re.MULTILINE)


@pytest.mark.parametrize(
    "words", [each for each in commands() if each.values[0][0] in {"kubectl", "helm", "docker"}]
)
def test_files_of_other_commands_are_there(words):
    files = [word for word in words if re.match(r"(examples|charts)/", word)]
    assert [file for file in files if not (ROOT / file).exists()] == []
    made = {word.removeprefix("dist/") for word in words if word.startswith("dist/")}
    assert made <= {"crds.yaml", "redis.yaml", "operator.yaml"}
    if "--target" in words:
        target = words[words.index("--target") + 1]
        assert f" AS {target}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def unknown_values(value, schema):
    """Return the names in values of the chart that its schema does not have."""
    if isinstance(value, list):
        return [name for each in value for name in unknown_values(each, schema["items"])]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    return [
        found
        for name, each in value.items()
        for found in (unknown_values(each, known[name]) if name in known else [name])
    ]


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.place)
def test_manifests_are_such_as_the_operator_takes(block):
    documents = list(yaml.safe_load_all(block.text))
    ours = [each for each in documents if each.get("apiVersion") == API_VERSION]
    if ours:
        missing = {each["spec"].get("queue") for each in ours} - {None}
        missing -= {each["metadata"]["name"] for each in ours}
        assert resources_of(*ours, *map(queue_document, missing))
        return
    (fields,) = documents
    if "audit" in fields.get("spec", {}) or "brokers" in fields:
        assert resources_of(queue_document("orders", **fields.get("spec", fields)))
        return
    if fields.keys() <= VALUES["properties"].keys():
        assert unknown_values(fields, VALUES) == []
        return
    assert re.search("POD_NAME|POD_UID|PARTQ_", block.text), "a part of a pod"
    known = {"PARTQ_URL", "PARTQ_QUEUE", "PARTQ_NAMESPACE", "PARTQ_GROUP", "PARTQ_TOKEN"}
    named = set(re.findall(r"PARTQ_[A-Z_]+", block.text))
    assert named <= known | {"PARTQ_MEMBER", "PARTQ_CA_FILE"}


def kinds():
    """Return of each kind of answer the fields that it always has, and all that it may have."""
    found = [({*fields_of(RescaleStatus)}, {*fields_of(RescaleStatus)})]
    for module in (answers, status, browse, removal, registration, scheduled):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if hasattr(kind, "__struct_fields__"):
                every = kind.__struct_fields__
                defaults = zip(reversed(every), reversed(kind.__struct_defaults__), strict=False)
                left_out = {name for name, default in defaults if default is answers.UNSET}
                found.append(({*every} - left_out, {*every}))
    return found


def fields_of(kind):
    return kind.__dataclass_fields__


@pytest.mark.parametrize(
    "block",
    [each for each in blocks("json") if each.page == "protocol.md"],
    ids=lambda block: block.place,
)
def test_answers_have_the_fields_that_the_page_shows(block):
    # A message shows the two forms of its value at once, and one field the words that it may have.
    text = re.sub(r'("[a-z_]+": "[^"]*") \| (?="\w+":)', r"\1, ", block.text)
    text = re.sub(r'("[a-z]+")( \| "[a-z]+")+', r"\1", text)
    shown = json.loads(text)
    assert any(always <= set(shown) <= every for always, every in kinds()), sorted(shown)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_programs_can_be_compiled(block):
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    assert compile(block.text, block.place, "exec", flags)
