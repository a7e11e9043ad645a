"""The heads of a record's chains: kept elsewhere, they show later that nothing was cut off."""

import json
from collections.abc import Mapping
from pathlib import Path

from partq.core.model import PartitionId
from partq.errors import SettingsError
from partq.pipeline.audit.judge.outcome import RecordHead

MAX_BYTES = 64 * 1024 * 1024


def read_heads(path: Path) -> Mapping[str, RecordHead]:
    """Return the heads that an earlier verdict.json has, or a file with heads alone.

    Raises:
        SettingsError: the file cannot be read, or has no heads.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"--expect {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise SettingsError(
            f"--expect {path}: has more than {MAX_BYTES} bytes; expected a verdict.json"
        )
    try:
        body = json.loads(data)
        heads = body.get("heads", body)
        if not heads:
            raise ValueError("no head of any partition")
        return {
            str(PartitionId.parse(partition)): RecordHead(int(head["sequence"]), head["chain"])
            for partition, head in heads.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"--expect {path}: got no heads ({error!r}); expected the verdict.json of an earlier "
            'audit, or {"heads": {"1.0": {"sequence": 41, "chain": "3f..."}}}'
        ) from error
