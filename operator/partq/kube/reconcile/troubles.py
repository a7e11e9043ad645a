"""Which errors of a queue its status shows, and which only the operator's log has."""

import logging

from partq.kube.errors import reason_of, sentence
from partq.kube.names import ConditionReason, ConditionType, QueueKey
from partq.kube.objects.credentials import QueueCredentials
from partq.kube.objects.queue_place import place_of
from partq.kube.status.conditions import Finding, bad

NO_REDIS = "no usable Redis answers there; the operator's log has the details"
"""All that is said of a host that a queue names: the queue's author may be probing the network."""

_log = logging.getLogger(__name__)


def trouble(
    key: QueueKey, part: str, error: BaseException, access: QueueCredentials | None
) -> Finding:
    """Return the condition that an error in a part of the work turns false.

    Of a Redis that the queue names, what it has answered is logged and not shown.
    """
    type_, reason = reason_of(error)
    if part in ("spec", "partitions"):
        type_, reason = ConditionType.SPEC_VALID, ConditionReason.INVALID_SPEC
    text = sentence(error)
    if reason is ConditionReason.STORE_UNREACHABLE and access is not None:
        where = place_of(access.redis_url)
        if access.is_own_redis:
            _log.info("queue %s: Redis at %s: %s", key, where, text)
            text = NO_REDIS
        text = f"Redis at {where}: {text}"
    return bad(type_, reason, text)
