"""The two resources: their models, how they are read, and their CustomResourceDefinitions."""

from partq.resources.documents import group_document, queue_document, resources_of, yaml_of
from partq.resources.models import (
    API_GROUP,
    API_VERSION,
    Brokers,
    ConsumerGroup,
    ConsumerGroupSpec,
    PartitionedQueue,
    PartitionedQueueSpec,
)
from partq.resources.reading import (
    MAX_FILE_CHARS,
    Resources,
    effective_group,
    effective_queue,
    parse_resource,
    parse_resources,
)
from partq.resources.selector import Selector

__all__ = [
    "API_GROUP",
    "API_VERSION",
    "MAX_FILE_CHARS",
    "Brokers",
    "ConsumerGroup",
    "ConsumerGroupSpec",
    "PartitionedQueue",
    "PartitionedQueueSpec",
    "Resources",
    "Selector",
    "effective_group",
    "effective_queue",
    "group_document",
    "parse_resource",
    "parse_resources",
    "queue_document",
    "resources_of",
    "yaml_of",
]
