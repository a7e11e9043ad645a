"""The highest epoch that a member of a shared partition was given, while one broker owns it."""

from dataclasses import dataclass

from partq.core.group.observation import NO_EPOCH
from partq.core.model import Epoch


@dataclass(slots=True)
class ShareEpochs:
    """Common to all groups of a partition, and to all lives of a group.

    Members are bound under epochs that the record does not know. A group that is created again, or
    whose cursor is moved, continues above them, whatever Redis's clock says.
    """

    top: Epoch = NO_EPOCH
