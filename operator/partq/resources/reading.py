"""From YAML and from Kubernetes's bodies to resources, with a sentence for each mistake.

The same YAML serves `kubectl apply` and `partq dev up`. A field that is not in the schema is
refused: a typing mistake must not pass as a default.
"""

import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from partq.errors import SettingsError
from partq.resources import dead_letter_queues
from partq.resources.base import DNS_LABEL
from partq.resources.dead_letters import DeadLetterPolicy
from partq.resources.key_shared import KeySharedPolicy
from partq.resources.models import INSTANT, INSTANT_RULE, ConsumerGroup, PartitionedQueue
from partq.resources.sessions import SessionPolicy

MAX_FILE_CHARS = 1024 * 1024
"""The most characters of a file of resources; etcd takes no larger object either."""
MAX_DOCUMENTS = 1000
MAX_PROBLEMS_SHOWN = 10
_NAME_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


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
        queues = []
        for queue in self.queues:
            brokers = queue.spec.brokers.model_copy(update={"replicas": count})
            spec = queue.spec.model_copy(update={"brokers": brokers})
            queues.append(queue.model_copy(update={"spec": spec}))
        return Resources(tuple(queues), self.groups)

    def with_dead_letter_queues(self) -> "Resources":
        """Return the same with the dead-letter queues that are to be made and not in the file."""
        queues = {queue.key: queue for queue in self.queues}
        for queue in self.queues:
            groups = [effective_group(group, queue) for group in self.groups_of(queue)]
            for name in dead_letter_queues.wanted(groups):
                made = parse_resource(dead_letter_queues.body_of(name, queue))
                if isinstance(made, PartitionedQueue):
                    queues.setdefault(made.key, made)
        return Resources(tuple(queues.values()), self.groups)


def effective_queue(queue: PartitionedQueue, groups: Iterable[str]) -> dict[str, object]:
    """Return the spec that brokers read from the store: all defaults filled in, and the groups.

    What only says how the brokers are run, or where the store is, is left out.
    """
    left_out = {"partitions_policy", "redis", "auth", "tls", "deletion_policy"}
    spec = queue.spec.model_dump(by_alias=True, exclude=left_out)
    return {**spec, "brokers": {"replicas": queue.spec.brokers.replicas}, "groups": sorted(groups)}


def effective_group(group: ConsumerGroup, queue: PartitionedQueue) -> dict[str, object]:
    """Return the spec that the coordinator reads: what is left out is the queue's."""
    own = group.spec.rebalance.model_dump(by_alias=True, exclude_none=True)
    start_at_ms = group.spec.start_at_ms
    left_out = {"selector", "start_at", "key_shared", "session"}
    spec = group.spec.model_dump(by_alias=True, exclude=left_out)
    if group.spec.type == "KeyShared":
        shared = group.spec.key_shared or KeySharedPolicy()
        spec |= {
            "keyShared": shared.model_dump(by_alias=True),
            "nack": {**spec["nack"], "order": "Key"},
        }
    if group.spec.type == "Session":
        session = group.spec.session or SessionPolicy()
        spec |= {
            "session": session.model_dump(by_alias=True),
            "nack": {**spec["nack"], "order": "Key"},
            "ack": {**spec["ack"], "maxStates": session.max_sessions},
        }
    if group.spec.type == "Shared":
        spec["nack"] = {**spec["nack"], "order": "Free"}
    return {
        **spec,
        "start": group.spec.start or "Earliest",
        **({} if start_at_ms is None else {"startAtMs": start_at_ms}),
        "strategy": group.spec.effective_strategy,
        "assignment": group.spec.assignment,
        "rebalance": {**queue.spec.rebalance.model_dump(by_alias=True), **own},
        "deadLetter": {
            **dead_letter_of(group, queue).model_dump(by_alias=True),
            "queue": dead_letter_queue(group, queue),
        },
    }


def dead_letter_of(group: ConsumerGroup, queue: PartitionedQueue) -> DeadLetterPolicy:
    """Return what holds for a group: its own, or its queue's."""
    return group.spec.dead_letter or queue.spec.dead_letter


def dead_letter_queue(group: ConsumerGroup, queue: PartitionedQueue) -> str:
    """Return the name of a group's dead-letter queue."""
    named = dead_letter_of(group, queue).queue
    return named or dead_letter_queues.default_name(queue.metadata.name, group.metadata.name)


def parse_resource(
    document: Mapping[str, object], *, ignores_unknown: bool = False
) -> PartitionedQueue | ConsumerGroup:
    """Read one resource.

    Args:
        document: what a person or an API server wrote.
        ignores_unknown: whether a field that is not in the schema is left out, not refused.

    Raises:
        SettingsError: one line per problem, as `parse_resources`.
    """
    try:
        return _resource(document, ignores_unknown=ignores_unknown)
    except ValidationError as error:
        raise _settings_error(list(_explain(error, document))) from None
    except ValueError as error:
        raise SettingsError(str(error)) from None


def parse_resources(text: str) -> Resources:
    """Read every document of a YAML file.

    Raises:
        SettingsError: one line per problem, with the document's number, kind and name, the field,
            what was got and what was expected.
    """
    found: list[tuple[str, PartitionedQueue | ConsumerGroup]] = []
    problems: list[str] = []
    refused: set[tuple[str, str]] = set()
    for number, document in enumerate(_documents(text), start=1):
        if document is None:
            continue  # an empty document, as a `---` at the end of a file leaves it
        where = f"document {number}" + _title(document)
        try:
            found.append((where, _resource(document)))
        except ValidationError as error:
            problems += [f"{where}: {line}" for line in _explain(error, document)]
            refused |= _queue_of(document)
        except ValueError as error:
            problems.append(f"{where}: {error}")
            refused |= _queue_of(document)
    problems += _conflicts(found, refused)
    if not problems:
        problems += _circles(found)
    if problems:
        raise _settings_error(problems)
    resources = Resources(
        tuple(each for _, each in found if isinstance(each, PartitionedQueue)),
        tuple(each for _, each in found if isinstance(each, ConsumerGroup)),
    )
    if not resources.queues:
        raise SettingsError("no PartitionedQueue: got none in the file, expected at least one")
    return resources


def _settings_error(problems: Sequence[str]) -> SettingsError:
    shown = list(problems[:MAX_PROBLEMS_SHOWN])
    if hidden := len(problems) - len(shown):
        shown.append(f"and {hidden} more")
    return SettingsError("\n".join(shown))


class _Loader(yaml.SafeLoader):
    """YAML that refuses a field given twice, of which the last would win, or named by no text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
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


def _resource(
    document: object, *, ignores_unknown: bool = False
) -> PartitionedQueue | ConsumerGroup:
    if not isinstance(document, dict):
        raise ValueError(f"got {reprlib.repr(document)}, expected an object with apiVersion, kind")
    kinds: dict[str, type[PartitionedQueue | ConsumerGroup]] = {
        "PartitionedQueue": PartitionedQueue,
        "ConsumerGroup": ConsumerGroup,
    }
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"kind: got {reprlib.repr(kind)}, expected one of {', '.join(kinds)}")
    return kinds[kind].model_validate(document, extra="ignore" if ignores_unknown else None)


def _title(document: object) -> str:
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


def _queue_of(document: object) -> set[tuple[str, str]]:
    """Return namespace and name of a document that was refused, if it is to be a queue."""
    if not isinstance(document, dict) or document.get("kind") == "ConsumerGroup":
        return set()
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return set()
    return {(str(metadata.get("namespace", "default")), str(metadata.get("name")))}


def _explain(error: ValidationError, document: Mapping[str, object]) -> Iterator[str]:
    model = PartitionedQueue if document["kind"] == "PartitionedQueue" else ConsumerGroup
    for problem in error.errors(include_url=False):
        path = ".".join(str(step) for step in problem["loc"])
        match problem["type"]:
            case "value_error":
                yield ".".join(filter(None, (path, str(problem["ctx"]["error"]))))
            case "missing":
                yield f"{path}: got nothing, expected it to be set"
            case "extra_forbidden":
                known = ", ".join(_aliases(_model_at(model, problem["loc"][:-1])))
                yield f"{path}: got an unknown field, expected only {known}"
            case _:
                expected = _expected(model, problem["loc"], problem["msg"])
                got = "nothing" if problem["input"] is None else reprlib.repr(problem["input"])
                yield f"{path}: got {got}, expected {expected}"


def _model_at(model: type[BaseModel], path: Iterable[int | str]) -> type[BaseModel]:
    """Return the model that a path leads to; what is no model (maps, numbers) ends the way."""
    for step in path:
        name = _aliases(model).get(str(step))
        if name is None:
            continue  # the place in a list
        found = next(_models(model.model_fields[name].annotation), None)
        if found is None:
            break
        model = found
    return model


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Find the models in a field's type: itself, or what it is a list or an option of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _aliases(model: type[BaseModel]) -> dict[str, str]:
    """Return the names in YAML, each with the attribute's."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _expected(model: type[BaseModel], path: tuple[int | str, ...], pydantic_says: str) -> str:
    """Return what a field takes, in the words of its schema."""
    fields = _model_at(model, path[:-1]).model_json_schema()["properties"]
    schema = fields.get(path[-1], {})
    match schema.get("anyOf", [schema])[0]:
        case {"enum": words}:
            return "one of " + ", ".join(map(str, words))
        case {"const": word}:
            return str(word)
        case {"type": kind, "minimum": low, "maximum": high}:
            return f"a {'whole number' if kind == 'integer' else 'number'} from {low} to {high}"
        case {"pattern": pattern, "maxLength": longest} if pattern == DNS_LABEL:
            return f"at most {longest} of a-z, 0-9 and '-', not '-' at either end"
        case {"pattern": pattern} if pattern == INSTANT:
            return INSTANT_RULE
        case {"pattern": pattern}:
            return f"a text that matches {pattern}"
        case {"$ref": _}:
            return "an object"
    return pydantic_says.removeprefix("Input should be ")


def _conflicts(
    found: list[tuple[str, PartitionedQueue | ConsumerGroup]],
    refused: Collection[tuple[str, str]],
) -> list[str]:
    """Name what only shows when all documents are read.

    `refused`: queues that have problems themselves, which their groups need not repeat.
    """
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
            and resource.queue_key not in refused
        ):
            problems.append(
                f"{where}: spec.queue: got {resource.spec.queue!r}, expected a PartitionedQueue "
                f"of the namespace {resource.metadata.namespace!r} in this file"
            )
    return problems


def _circles(found: list[tuple[str, PartitionedQueue | ConsumerGroup]]) -> list[str]:
    """Name each resource by which dead letters come back to a queue that they have left."""
    queues = {each.key: each for _, each in found if isinstance(each, PartitionedQueue)}
    targets: dict[tuple[str, str], set[tuple[str, str]]] = {}
    problems = []
    for where, resource in found:
        if isinstance(resource, ConsumerGroup):
            origin = resource.queue_key
            target = dead_letter_queue(resource, queues[origin])
        elif resource.spec.dead_letter.queue is not None:
            origin, target = resource.key, resource.spec.dead_letter.queue
        else:
            continue
        key = origin[0], target
        if origin in _reached(key, targets):
            problems.append(
                f"{where}: spec.deadLetter.queue: got {target!r}, whose dead letters come back to "
                f"{origin[1]!r}, expected a queue whose dead letters do not: a message that dies "
                "would go round without end"
            )
        else:
            targets.setdefault(origin, set()).add(key)
    return problems


def _reached(
    start: tuple[str, str], targets: Mapping[tuple[str, str], Collection[tuple[str, str]]]
) -> set[tuple[str, str]]:
    """Return the queues that a message in `start` can come to by dying."""
    reached, left = {start}, [start]
    while left:
        for target in targets.get(left.pop(), ()):
            if target not in reached:
                reached.add(target)
                left.append(target)
    return reached
