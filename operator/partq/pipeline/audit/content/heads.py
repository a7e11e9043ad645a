"""What an earlier audit ended with: kept elsewhere, it shows later that nothing was cut off."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from partq.core.model import PartitionId
from partq.errors import SettingsError
from partq.pipeline.audit.judge.outcome import RecordHead

MAX_BYTES = 64 * 1024 * 1024


class EarlierAudit(NamedTuple):
    """What an archive must still have."""

    heads: Mapping[str, RecordHead]
    """Partition → a group of its record."""
    archived: Mapping[str, int] = {}
    """Partition → the offset below which its messages were archived."""


def read_earlier(path: Path) -> EarlierAudit:
    """Return what the verdict.json of an earlier audit says, or a file with heads alone.

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
        # Verdicts of earlier versions say nothing of the messages.
        archived = body["archived"] if "heads" in body and body.get("archived") else {}
        return EarlierAudit(
            {
                str(PartitionId.parse(partition)): RecordHead(int(head["sequence"]), head["chain"])
                for partition, head in heads.items()
            },
            {str(PartitionId.parse(partition)): int(stop) for partition, stop in archived.items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"--expect {path}: got no heads ({error!r}); expected the verdict.json of an earlier "
            'audit, or {"heads": {"1.0": {"sequence": 41, "chain": "3f..."}}}'
        ) from error
