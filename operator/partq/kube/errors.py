"""Errors between the operator and Kubernetes, each with the reason that its condition shows."""

from partq.coordinator.provision import OtherLifeError
from partq.errors import PartqError, SettingsError, UnavailableError
from partq.kube.names import ConditionReason, ConditionType


class KubernetesError(UnavailableError):
    """The API server refused a call, or did not answer."""

    code = "kubernetes_unavailable"

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; 0: no answer."""


class NameTakenError(SettingsError):
    """An object of a name that the operator needs belongs to another owner."""

    code = "name_taken"


class SecretMissingError(SettingsError):
    """A Secret that the spec names is not there, or lacks an entry."""

    code = "secret_missing"


class AddressRefusedError(SettingsError):
    """A queue names a Redis at an address that no queue may name."""

    code = "address_refused"


class RedisImmutableError(SettingsError):
    """A queue's URL leads to another Redis than the one with its records."""

    code = "redis_immutable"


class StoreEmptyError(SettingsError):
    """A Redis does not hold a queue that it had."""

    code = "store_empty"


class NotLeadingError(UnavailableError):
    """Another replica of the operator leads: this one must not act."""

    code = "not_leading"


def reason_of(error: BaseException) -> tuple[ConditionType, ConditionReason]:
    """Return the condition that an error turns false, and the reason."""
    match error:
        case NameTakenError():
            return ConditionType.OBJECTS_APPLIED, ConditionReason.NAME_TAKEN
        case SecretMissingError():
            return ConditionType.OBJECTS_APPLIED, ConditionReason.SECRET_MISSING
        case KubernetesError(status=403):
            return ConditionType.OBJECTS_APPLIED, ConditionReason.FORBIDDEN
        case KubernetesError(status=400 | 422):
            return ConditionType.OBJECTS_APPLIED, ConditionReason.REFUSED
        case KubernetesError():
            return ConditionType.OBJECTS_APPLIED, ConditionReason.API_UNAVAILABLE
        case AddressRefusedError():
            return ConditionType.SPEC_VALID, ConditionReason.ADDRESS_REFUSED
        case RedisImmutableError():
            return ConditionType.SPEC_VALID, ConditionReason.REDIS_IMMUTABLE
        case StoreEmptyError():
            return ConditionType.STORE_REACHABLE, ConditionReason.STORE_EMPTY
        case OtherLifeError():
            return ConditionType.STORE_REACHABLE, ConditionReason.STORE_OWNED_BY_ANOTHER
        case SettingsError():
            return ConditionType.STORE_REACHABLE, ConditionReason.STORE_UNUSABLE
        case UnavailableError() | TimeoutError():
            return ConditionType.STORE_REACHABLE, ConditionReason.STORE_UNREACHABLE
    return ConditionType.STORE_REACHABLE, ConditionReason.INTERNAL_ERROR


def sentence(error: BaseException) -> str:
    """Return the text of an error for a condition."""
    if isinstance(error, PartqError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
