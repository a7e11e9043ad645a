"""What the models of both resources are made of: names, rules, and how a model reads YAML."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from partq.core.model import MAX_QUEUE_NAME_CHARS

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

Name = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
# The StatefulSet `NAME-broker` may have 52 characters: Kubernetes adds its revision hash to it and
# makes a label of that.
QueueName = Annotated[str, Field(min_length=1, max_length=MAX_QUEUE_NAME_CHARS, pattern=DNS_LABEL)]

ObjectName = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
"""The name of a Secret and the like."""

LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)]
LabelValue = Annotated[str, Field(max_length=63)]
Labels = Annotated[dict[str, LabelValue], Field(max_length=20)]


def rule(expression: str, message: str) -> JsonDict:
    """Return what a field or a model says for one rule in Kubernetes's expression language."""
    return rules((expression, message))


def rules(*pairs: tuple[str, str]) -> JsonDict:
    """Return what a model says for several rules, each with its message."""
    return {
        "x-kubernetes-validations": [
            {"rule": expression, "message": message} for expression, message in pairs
        ]
    }


class Model(BaseModel):
    """A part of a resource: unknown fields are refused, names in YAML are camelCase."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
