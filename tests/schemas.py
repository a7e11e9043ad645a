"""The schemas of Kubernetes's own kinds, of every version that the package has, from 1.25 on."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import kubernetes_validate
import pytest
from kubernetes_validate import utils
from kubernetes_validate.utils import all_versions

# Else a megabyte of definitions is parsed anew for each object that is looked at. Those of one or
# two versions are kept at a time.
utils.schema_contents = lru_cache(maxsize=32)(utils.schema_contents)


def _minor(text: str) -> tuple[int, int]:
    major, minor, *_ = map(int, text.split("."))
    return major, minor


VERSIONS = sorted({_minor(each) for each in all_versions()})
"""The oldest first."""


def assert_valid(body: Mapping[str, Any], version: tuple[int, int]) -> None:
    """See that a server of this version knows every field and takes its value."""
    text = ".".join(map(str, version))
    try:
        used = kubernetes_validate.validate(body, text, strict=True)
    except kubernetes_validate.ValidationError as error:
        path = ".".join(map(str, error.path))
        name = body["metadata"].get("name", "without a name")
        pytest.fail(f"{text}: {body['kind']} {name}: {path}: {error.message}")
    assert used == text
