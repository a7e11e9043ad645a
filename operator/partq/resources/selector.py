"""Labels and taints: which pods may be members of a group, and on which nodes pods may run."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from partq.resources.base import LabelKey, Labels, LabelValue, Model


class SelectorRequirement(Model):
    """A condition on one label."""

    key: LabelKey
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How its value relates to `values`."""
    values: Annotated[list[LabelValue], Field(max_length=50)] = Field(
        default=[], json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    """The values, for `In` and `NotIn`."""


class Selector(Model):
    """Which pods are meant: all conditions must hold."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    match_labels: Labels = Field(default={})
    """Labels that a pod must have, each with its value."""
    match_expressions: Annotated[list[SelectorRequirement], Field(max_length=20)] = Field(
        default=[], json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    """Further conditions on labels."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> "Selector":
        if not self.match_labels and not self.match_expressions:
            raise ValueError("matchLabels: got no condition here or in matchExpressions")
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether a pod with these labels is meant."""
        if any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_holds(each, labels) for each in self.match_expressions)


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
    return value is None


class Toleration(Model):
    """A taint of nodes that pods accept."""

    key: LabelKey | None = None
    """Key of the taint; left out: every key, with the operator `Exists`."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How `value` is compared."""
    value: LabelValue | None = None
    """Value of the taint, for `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; left out: every effect."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """For how long `NoExecute` is accepted; left out: without limit."""
