"""The two resources as pydantic models: schema, defaults, bounds, descriptions.

The same YAML serves `kubectl apply` and `partq dev up`. What is not served yet is not in the
schema, and a field that is not in the schema is refused: a typing mistake must not pass as a
default.
"""

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from partq.errors import SettingsError

API_VERSION = "partq.dev/v1alpha1"
MAX_FILE_CHARS = 1024 * 1024
"""The most characters of a file of resources; etcd takes no larger object either."""
MAX_DOCUMENTS = 1000
MAX_PROBLEMS_SHOWN = 10
_KIB, _MIB, _TIB = 2**10, 2**20, 2**40
_DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

_Name = Annotated[str, Field(min_length=1, max_length=63, pattern=_DNS_LABEL)]
# The StatefulSet `NAME-broker` may have 52 characters: Kubernetes adds its revision hash to it and
# makes a label of that.
_QueueName = Annotated[str, Field(min_length=1, max_length=45, pattern=_DNS_LABEL)]

_NAME_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
Strategy = Literal["sticky", "range", "modulo", "failover"]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class Metadata(_Model):
    """The part of a Kubernetes object's metadata that a person writes."""

    name: _Name
    """Name, unique per kind and namespace."""
    namespace: _Name = "default"
    """Namespace; without one: `default`."""
    labels: dict[str, str] = {}
    """Labels; partq does not read them."""
    annotations: dict[str, str] = {}
    """Annotations; partq does not read them."""


class QueueMetadata(Metadata):
    """Metadata of a queue, whose name is a part of its brokers' names."""

    name: _QueueName
    """Name, unique per namespace; at most 45 characters."""


class Brokers(_Model):
    """The broker processes of a queue."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 2
    """How many brokers share the partitions; any number of them but the last may be away."""


class Rebalance(_Model):
    """When and how partitions move between the members of a group."""

    delay_seconds: Annotated[float, Field(ge=0, le=3600)] = 5
    """How long the partitions of a lost member wait for it before others get them."""
    max_handoff_seconds: Annotated[float, Field(ge=0, le=3600)] = 3
    """How long a member may finish what it has in hand when a partition leaves it; 0: not."""


class RebalanceOverrides(_Model):
    """What a group does otherwise than its queue says."""

    delay_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None
    """As in the queue; left out: the queue's."""
    max_handoff_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None
    """As in the queue; left out: the queue's."""


class Limits(_Model):
    """What the brokers refuse or hold back."""

    max_message_bytes: Annotated[int, Field(ge=_KIB, le=15 * _MIB)] = 5 * _MIB
    """The largest message, encoded, with its key and headers; larger: `message_too_large`."""
    max_spool_bytes: Annotated[int, Field(ge=_MIB, le=1024 * _TIB)] | None = None
    """The most bytes that the queue stores, an even share per partition; left out: no limit."""
    max_unacked_per_flow: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """How many messages one connection of a consumer may hold that are not acknowledged."""


class PartitionedQueueSpec(_Model):
    """What a queue shall be."""

    partitions: Annotated[int, Field(ge=1, le=4096)] = 16
    """How many partitions share the keys; the most members of a group that can work at a time."""
    keyless_policy: Literal["Random", "RoundRobin"] = "Random"
    """Which partition a message without a key goes to; both skip partitions without a broker."""
    brokers: Brokers = Brokers()
    rebalance: Rebalance = Rebalance()
    limits: Limits = Limits()


class ConsumerGroupSpec(_Model):
    """What a consumer group shall be."""

    queue: _QueueName
    """The PartitionedQueue that the group consumes, in the same namespace."""
    type: Literal["Partitioned", "Exclusive", "Failover"] = "Partitioned"
    """Partitioned: members share the partitions. Failover: each partition has a master, the other
    members stand by in the order of their names. Exclusive: one member has all partitions."""
    strategy: Strategy | None = None
    """How partitions are assigned; left out: `sticky`, or `failover` for the other two types."""
    rebalance: RebalanceOverrides = RebalanceOverrides()
    start: Literal["Earliest", "Latest"] = "Earliest"
    """Where a new group begins: the oldest message stored, or what is published from then on."""

    @model_validator(mode="after")
    def _strategy_fits_type(self) -> "ConsumerGroupSpec":
        if self.type != "Partitioned" and self.strategy not in (None, "failover"):
            raise ValueError(
                f"strategy: got {self.strategy!r}, expected 'failover' for the type {self.type!r}"
            )
        return self

    @property
    def effective_strategy(self) -> Strategy:
        """The strategy in force."""
        return self.strategy or ("sticky" if self.type == "Partitioned" else "failover")


class PartitionedQueue(_Model):
    """A log of messages, split into partitions by key."""

    api_version: Literal["partq.dev/v1alpha1"]
    kind: Literal["PartitionedQueue"]
    metadata: QueueMetadata
    spec: PartitionedQueueSpec = PartitionedQueueSpec()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name


class ConsumerGroup(_Model):
    """Members that share the partitions of a queue."""

    api_version: Literal["partq.dev/v1alpha1"]
    kind: Literal["ConsumerGroup"]
    metadata: Metadata
    spec: ConsumerGroupSpec

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def queue_key(self) -> tuple[str, str]:
        """Namespace and name of the queue."""
        return self.metadata.namespace, self.spec.queue


@dataclass(frozen=True, slots=True)
class Resources:
    """What one file declares; every group's queue is among the queues."""

    queues: tuple[PartitionedQueue, ...]
    groups: tuple[ConsumerGroup, ...]

    def groups_of(self, queue: PartitionedQueue) -> tuple[ConsumerGroup, ...]:
        """Return the groups of a queue, in the order of the file."""
        return tuple(group for group in self.groups if group.queue_key == queue.key)

    def with_replicas(self, count: int) -> "Resources":
        """Return the same with `count` brokers for each queue (1 to 64, which is not checked)."""
        brokers = Brokers(replicas=count)
        queues = []
        for queue in self.queues:
            spec = queue.spec.model_copy(update={"brokers": brokers})
            queues.append(queue.model_copy(update={"spec": spec}))
        return Resources(tuple(queues), self.groups)


def effective_queue(queue: PartitionedQueue, groups: Iterable[str]) -> dict[str, Any]:
    """Return the spec that brokers read from the store: all defaults filled in, and the groups."""
    return {**queue.spec.model_dump(by_alias=True), "groups": sorted(groups)}


def effective_group(group: ConsumerGroup, queue: PartitionedQueue) -> dict[str, Any]:
    """Return the spec that the coordinator reads: what is left out is the queue's."""
    own = group.spec.rebalance.model_dump(by_alias=True, exclude_none=True)
    return {
        **group.spec.model_dump(by_alias=True),
        "strategy": group.spec.effective_strategy,
        "rebalance": {**queue.spec.rebalance.model_dump(by_alias=True), **own},
    }


def parse_resources(text: str) -> Resources:
    """Read every document of a YAML file.

    Raises:
        SettingsError: one line per problem, with the document's number, kind and name, the field,
            what was got and what was expected.
    """
    found: list[tuple[str, PartitionedQueue | ConsumerGroup]] = []
    problems: list[str] = []
    for number, document in enumerate(_documents(text), start=1):
        if document is None:
            continue  # an empty document, as a `---` at the end of a file leaves it
        where = f"document {number}" + _title(document)
        try:
            found.append((where, _resource(document)))
        except ValidationError as error:
            problems += [f"{where}: {line}" for line in _explain(error, document)]
        except ValueError as error:
            problems.append(f"{where}: {error}")
    problems += _conflicts(found)
    if problems:
        shown = problems[:MAX_PROBLEMS_SHOWN]
        if hidden := len(problems) - len(shown):
            shown.append(f"and {hidden} more")
        raise SettingsError("\n".join(shown))
    resources = Resources(
        tuple(each for _, each in found if isinstance(each, PartitionedQueue)),
        tuple(each for _, each in found if isinstance(each, ConsumerGroup)),
    )
    if not resources.queues:
        raise SettingsError("no PartitionedQueue: got none in the file, expected at least one")
    return resources


class _Loader(yaml.SafeLoader):
    """YAML that refuses a field given twice, of which the last would win, or named by no text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag not in _NAME_TAGS:
                raise yaml.constructor.ConstructorError(
                    None, None, "the name of a field is not a text", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _documents(text: str) -> list[Any]:
    if len(text) > MAX_FILE_CHARS:
        raise SettingsError(
            f"got {len(text)} characters of YAML, expected at most {MAX_FILE_CHARS}"
        )
    documents: list[Any] = []
    try:
        # A subclass of SafeLoader: it makes no objects.
        for document in yaml.load_all(text, Loader=_Loader):
            documents.append(document)
            if len(documents) > MAX_DOCUMENTS:
                raise SettingsError(f"got more than {MAX_DOCUMENTS} documents, expected fewer")
    except RecursionError:
        raise SettingsError("got YAML nested too deeply, expected resources") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "a character that YAML does not allow"
        raise SettingsError(
            f"document {len(documents) + 1}{place}: the YAML cannot be read: {problem}"
        ) from None
    return documents


def _resource(document: Any) -> PartitionedQueue | ConsumerGroup:
    if not isinstance(document, dict):
        raise ValueError(f"got {reprlib.repr(document)}, expected an object with apiVersion, kind")
    kinds: dict[str, type[PartitionedQueue | ConsumerGroup]] = {
        "PartitionedQueue": PartitionedQueue,
        "ConsumerGroup": ConsumerGroup,
    }
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"kind: got {reprlib.repr(kind)}, expected one of {', '.join(kinds)}")
    return kinds[kind].model_validate(document)


def _title(document: Any) -> str:
    """Return ` (Kind name)` as far as the document says it."""
    if not isinstance(document, dict):
        return ""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    words = [
        word[:100]
        for word in (document.get("kind"), name)
        if isinstance(word, str) and word.isprintable()
    ]
    return f" ({' '.join(words)})" if words else ""


def _explain(error: ValidationError, document: Mapping[str, Any]) -> Iterator[str]:
    model = PartitionedQueue if document["kind"] == "PartitionedQueue" else ConsumerGroup
    for problem in error.errors(include_url=False):
        path = ".".join(str(step) for step in problem["loc"])
        match problem["type"]:
            case "value_error":
                yield f"{path}.{problem['ctx']['error']}"
            case "missing":
                yield f"{path}: got nothing, expected it to be set"
            case "extra_forbidden":
                known = ", ".join(_aliases(_model_at(model, problem["loc"][:-1])))
                yield f"{path}: got an unknown field, expected only {known}"
            case _:
                expected = _expected(model, problem["loc"], problem["msg"])
                yield f"{path}: got {reprlib.repr(problem['input'])}, expected {expected}"


def _model_at(model: type[BaseModel], path: Iterable[int | str]) -> type[BaseModel]:
    for step in path:
        annotation = model.model_fields[_aliases(model)[str(step)]].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        model = annotation
    return model


def _aliases(model: type[BaseModel]) -> dict[str, str]:
    """Return the names in YAML, each with the attribute's."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _expected(model: type[BaseModel], path: tuple[int | str, ...], pydantic_says: str) -> str:
    """Return what a field takes, in the words of its own schema."""
    fields = _model_at(model, path[:-1]).model_json_schema()["properties"]
    schema = fields.get(path[-1], {})
    match schema.get("anyOf", [schema])[0]:
        case {"enum": words}:
            return "one of " + ", ".join(words)
        case {"const": word}:
            return str(word)
        case {"type": kind, "minimum": low, "maximum": high}:
            return f"a {'whole number' if kind == 'integer' else 'number'} from {low} to {high}"
        case {"pattern": _, "maxLength": longest}:
            return f"at most {longest} of a-z, 0-9 and '-', not '-' at either end"
        case {"$ref": _}:
            return "an object"
    return pydantic_says.removeprefix("Input should be ")


def _conflicts(found: list[tuple[str, PartitionedQueue | ConsumerGroup]]) -> list[str]:
    """Name what only shows when all documents are read."""
    problems = []
    seen: dict[tuple[str, str, str], str] = {}
    for where, resource in found:
        first = seen.setdefault((resource.kind, *resource.key), where)
        if first != where:
            problems.append(
                f"{where}: metadata.name: got a name that {first} has, expected another one"
            )
    for where, resource in found:
        if (
            isinstance(resource, ConsumerGroup)
            and ("PartitionedQueue", *resource.queue_key) not in seen
        ):
            problems.append(
                f"{where}: spec.queue: got {resource.spec.queue!r}, expected a PartitionedQueue "
                f"of the namespace {resource.metadata.namespace!r} in this file"
            )
    return problems
