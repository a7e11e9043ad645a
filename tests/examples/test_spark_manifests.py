"""examples/spark: the manifests fit each other, the image and the commands."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from partq.cli.pipeline.group import pipeline
from partq.resources import parse_resources
from tests.schemas import VERSIONS, assert_valid

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SPARK = EXAMPLES / "spark"


def bodies(name):
    return {
        body["kind"]: body for body in yaml.safe_load_all((SPARK / name).read_text("utf-8")) if body
    }


@pytest.fixture
def application():
    return bodies("sparkapplication.yaml")["SparkApplication"]


def test_the_group_belongs_to_the_queue_of_the_examples():
    both = [(EXAMPLES / "queue.yaml").read_text("utf-8"), (SPARK / "group.yaml").read_text("utf-8")]
    resources = parse_resources("---\n".join(both))
    (queue,) = resources.queues
    named = {group.metadata.name: group.spec.queue for group in resources.groups}
    assert named["archive"] == queue.metadata.name


def test_every_job_archives_that_queue_for_that_group(application):
    job = bodies("job.yaml")["Job"]["spec"]["template"]["spec"]["containers"][0]
    pod = bodies("pod.yaml")["Pod"]["spec"]["containers"][0]
    templates = [application["spec"][role]["template"] for role in ("driver", "executor")]
    found = [job, pod, *(each["spec"]["containers"][0] for each in templates)]
    environments = [{each["name"]: each for each in container["env"]} for container in found]
    assert all(each == environments[0] for each in environments)
    assert environments[0]["PARTQ_QUEUE"]["value"] == "orders"
    assert job["args"][0] == "pipeline"
    assert job["args"][1:] == application["spec"]["arguments"]


def test_a_job_leaves_out_what_its_token_may_not_read():
    container = bodies("job.yaml")["Job"]["spec"]["template"]["spec"]["containers"][0]
    (token,) = (each["valueFrom"] for each in container["env"] if each["name"] == "PARTQ_TOKEN")
    # Unasked the audit record is looked for, which is an administrator's.
    assert (token["secretKeyRef"]["key"] == "admin") != ("--no-audit" in container["args"])


def test_the_arguments_are_those_of_a_command(application, monkeypatch):
    name, *arguments = application["spec"]["arguments"]
    for variable in ("PARTQ_URL", "PARTQ_QUEUE", "PARTQ_TOKEN"):
        monkeypatch.setenv(variable, "http://orders-partq:7411")
    context = pipeline.make_context("pipeline", [name, *arguments])
    command = pipeline.get_command(context, name)
    assert command is not None, f"no partq pipeline {name}"
    parsed = command.make_context(name, arguments, parent=context)
    assert "archive" in parsed.params.values()


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_the_application_s_pods_fit_every_version(application, role):
    template = application["spec"][role]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    for version in VERSIONS:
        assert_valid(pod, version)


def test_the_driver_has_an_account_that_may_make_executors(application):
    rbac = bodies("rbac.yaml")
    account = rbac["ServiceAccount"]["metadata"]["name"]
    assert application["spec"]["driver"]["serviceAccount"] == account
    assert rbac["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert rbac["RoleBinding"]["roleRef"]["name"] == rbac["Role"]["metadata"]["name"]
    (rule,) = rbac["Role"]["rules"]
    assert {"pods", "services", "configmaps"} <= set(rule["resources"])
    assert {"create", "deletecollection"} <= set(rule["verbs"])


def test_the_versions_are_those_of_the_image_and_the_project(application):
    pinned = (ROOT / "constraints-spark.txt").read_text("utf-8")
    assert f"pyspark=={application['spec']['sparkVersion']} \\\n" in pinned
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    texts = [
        path.read_text("utf-8") for path in (SPARK / "job.yaml", SPARK / "sparkapplication.yaml")
    ]
    named = {found for text in texts for found in re.findall(r"image: (\S+)", text)}
    assert named == {f"partq-spark:{version}"}


def test_what_is_submitted_is_in_the_image(application):
    file = application["spec"]["mainApplicationFile"].removeprefix("local://")
    assert f" {file}\n" in (ROOT / "Dockerfile").read_text("utf-8")


def test_the_image_has_everything_that_the_extra_names():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    by_extra = extras["optional-dependencies"]
    wanted = {re.split(r"[>=<]", line)[0] for line in (*by_extra["spark"], *by_extra["pipeline"])}
    wanted -= {"partq[pipeline]", "partq[cli]"}
    pinned = re.findall(
        r"^(\S+)==", (ROOT / "constraints-spark.txt").read_text("utf-8"), re.MULTILINE
    )
    assert wanted <= set(pinned)
