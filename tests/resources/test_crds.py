"""The CustomResourceDefinitions: the files are the models', and Kubernetes can take them."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from partq.cli.crds import crds as command
from partq.resources.crds import CRDS, NEW_RULES, group_crd, queue_crd, render, without_new_rules

ROOT = Path(__file__).parents[2]
COPIES = ("crds", "charts/partq/files/crds")
"""The chart has its own: Helm reads nothing outside of it."""


def schemas(tree, path=""):
    """Yield every schema of a definition's fields with its path."""
    yield path, tree
    for name, field in tree.get("properties", {}).items():
        yield from schemas(field, f"{path}.{name}")
    if "items" in tree:
        yield from schemas(tree["items"], f"{path}[]")
    if "additionalProperties" in tree:
        yield from schemas(tree["additionalProperties"], f"{path}{{}}")


def root(make):
    return make()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def keys(tree):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from keys(value)
    elif isinstance(tree, list):
        for each in tree:
            yield from keys(each)


@pytest.mark.parametrize("name", CRDS)
@pytest.mark.parametrize("directory", COPIES)
def test_files_are_what_the_models_say(directory, name):
    text = (ROOT / directory / name).read_text(encoding="utf-8")
    assert text == render(CRDS[name]()), f"run `partq crds --dir {directory}`"


@pytest.mark.parametrize("make", CRDS.values())
def test_every_field_is_described(make):
    # Kubernetes takes a description neither for the metadata nor for what a list or map holds.
    missing = [
        path
        for path, schema in schemas(root(make))
        if "description" not in schema
        and not path.startswith(".metadata")
        and not path.endswith(("[]", "{}"))
    ]
    assert missing == []


@pytest.mark.parametrize("make", CRDS.values())
def test_schema_is_structural(make):
    for path, schema in schemas(root(make)):
        assert "$ref" not in schema, path
        assert "title" not in schema, path
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        if schema.get("type") == "array":
            assert schema["x-kubernetes-list-type"] in {"map", "set", "atomic"}, path
            for key in schema.get("x-kubernetes-list-map-keys", ()):
                assert key in schema["items"]["required"], path
        if "default" in schema and schema.get("enum"):
            assert schema["default"] in schema["enum"], path


@pytest.mark.parametrize("make", CRDS.values())
def test_every_size_is_bounded(make):
    unbounded = [
        path
        for path, schema in schemas(root(make))
        if (schema.get("type") == "array" and "maxItems" not in schema)
        or (schema.get("type") == "string" and not {"maxLength", "enum", "format"} & schema.keys())
        or ("additionalProperties" in schema and "maxProperties" not in schema)
    ]
    # What Kubernetes itself fills in, and a text that a pattern bounds.
    assert set(unbounded) <= {".apiVersion", ".kind", ".status.storeUid"}


def test_defaults_stand_in_the_schema():
    spec = root(queue_crd)["properties"]["spec"]
    assert spec["default"] == {}
    assert spec["properties"]["partitions"]["default"] == 16
    assert spec["properties"]["brokers"]["default"] == {}
    assert spec["properties"]["brokers"]["properties"]["replicas"]["default"] == 2


def test_what_a_group_needs():
    assert root(group_crd)["required"] == ["spec"]
    assert root(group_crd)["properties"]["spec"]["required"] == ["queue", "selector"]


@pytest.mark.parametrize("make", CRDS.values())
def test_first_columns_say_whether_it_works(make):
    columns = make()["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in columns[:2]] == ["Ready", "Reason"]
    assert all("priority" not in column for column in columns[:2])


@pytest.mark.parametrize("make", CRDS.values())
def test_old_servers_get_no_rule_that_they_refuse(make):
    assert set(NEW_RULES) & set(keys(make()))
    assert not set(NEW_RULES) & set(keys(without_new_rules(make())))


def test_command(tmp_path):
    run = CliRunner().invoke
    assert run(command, ["--dir", str(tmp_path)]).exit_code == 0
    assert run(command, ["--dir", str(tmp_path), "--check"]).exit_code == 0

    file = tmp_path / "consumergroup.yaml"
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert run(command, ["--dir", str(tmp_path), "--check"]).exit_code == 1

    assert run(command, ["--dir", str(tmp_path), "--old-servers"]).exit_code == 0
    old = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert "selectableFields" not in old["spec"]["versions"][0]


@pytest.mark.parametrize("crd", [queue_crd(), group_crd()], ids=["queue", "group"])
def test_an_older_operator_can_write_status(crd):
    """Definitions are upgraded first: no field of a status is required but the keys of lists."""

    def needed(schema, keys=()):
        found = set(schema.get("required", ())) - set(keys)
        for field in schema.get("properties", {}).values():
            found |= needed(field)
        if "items" in schema:
            found |= needed(schema["items"], schema.get("x-kubernetes-list-map-keys", ()))
        return found

    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert needed(schema["properties"]["status"]) == set()
