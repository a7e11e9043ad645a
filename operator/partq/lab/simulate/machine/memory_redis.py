"""A Redis in this process: the commands that partq uses, and its real Lua scripts.

Its time is given, so it can be simulated, and the keys can be copied: that is how a store that
lost its last writes is made. A test compares it, call by call, with a real redis-server.
"""

import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final, NamedTuple

from lupa import lua51

from partq.store.pipelined_connection import Reply

NODE_ENTRIES = 100
"""A real stream trims whole nodes of so many entries when it is asked to trim about."""

Args = Sequence[bytes]
Id = tuple[int, int]


class CommandError(Exception):
    """A command that this Redis does not know, or not in this form."""


class StreamEntry(NamedTuple):
    """One entry of a stream."""

    id: Id
    fields: list[bytes]


@dataclass(slots=True)
class Stream:
    """A stream: its entries, by rising id, and the last id that was given."""

    entries: list[StreamEntry] = field(default_factory=list)
    last: Id = (0, 0)


@dataclass(slots=True)
class SortedSet:
    """A sorted set: scores are whole numbers."""

    scores: dict[bytes, int] = field(default_factory=dict)
    order: list[tuple[int, bytes]] = field(default_factory=list)
    """By score, then by member."""

    def remove(self, member: bytes) -> bool:
        """Remove a member; return whether it was there."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        del self.order[bisect_left(self.order, (score, member))]
        return True

    def within(self, low: bytes, high: bytes) -> slice:
        """Return the places of the scores from `low` to `high`: "5", "(5", "-inf", "+inf"."""
        start, stop = 0, len(self.order)
        if low != b"-inf":
            start = bisect_left(self.order, (int(low.lstrip(b"(")) + low.startswith(b"("), b""))
        if high != b"+inf":
            beyond = int(high.lstrip(b"(")) + (not high.startswith(b"("))
            stop = bisect_left(self.order, (beyond, b""))
        return slice(start, stop)


Value = dict[bytes, bytes] | Stream | SortedSet


class MemoryRedis:
    """One server's keys. Not a thread's or task's: a call is answered at once."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.keys: dict[bytes, Value] = {}
        self._now = now
        self._commands: Mapping[bytes, Callable[[Args], Any]] = {
            name.removeprefix("_do_").upper().encode(): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }

    def command(self, name: bytes, args: Args) -> Reply:
        """Carry out a command: int, bytes, None or a list."""
        known = self._commands.get(name)
        if known is None:
            raise CommandError(f"unknown command {name!r}")
        return known(args)

    def run(self, script: "CompiledScript", keys: Args, args: Args) -> Reply:
        """Run a script; its calls come back to this server."""
        return _LUA.run(self, script, keys, args)

    def copy(self) -> dict[bytes, Value]:
        """Return what `keys` is now, for later."""
        return {
            key: dict(value)
            if isinstance(value, dict)
            else Stream(list(value.entries), value.last)
            if isinstance(value, Stream)
            else SortedSet(dict(value.scores), list(value.order))
            for key, value in self.keys.items()
        }

    def restore(self, kept: dict[bytes, Value], prefix: bytes = b"") -> None:
        """Go back to a copy, which is used up by that. `prefix`: of the keys that do."""
        stay = {key: value for key, value in self.keys.items() if not key.startswith(prefix)}
        self.keys = stay | {key: value for key, value in kept.items() if key.startswith(prefix)}

    def hash(self, key: bytes) -> dict[bytes, bytes]:
        """Return the fields of a hash; empty when the key does not exist."""
        value = self.keys.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise CommandError(f"{key!r} is no hash")
        return value

    def stream(self, key: bytes) -> Stream:
        """Return a stream; an empty one when the key does not exist."""
        value = self.keys.get(key)
        if value is None:
            return Stream()
        if not isinstance(value, Stream):
            raise CommandError(f"{key!r} is no stream")
        return value

    def sorted_set(self, key: bytes) -> SortedSet:
        """Return a sorted set; an empty one when the key does not exist."""
        value = self.keys.get(key)
        if value is None:
            return SortedSet()
        if not isinstance(value, SortedSet):
            raise CommandError(f"{key!r} is no sorted set")
        return value

    # ---- keys -----------------------------------------------------------------------------------

    def _do_exists(self, args: Args) -> int:
        return sum(key in self.keys for key in args)

    def _do_del(self, args: Args) -> int:
        return sum(self.keys.pop(key, None) is not None for key in args)

    _do_unlink = _do_del

    def _do_pexpire(self, args: Args) -> int:
        # Nothing lives for so short a time that its end would come in a history.
        return int(args[0] in self.keys)

    def _do_time(self, args: Args) -> list[bytes]:
        micros = round(self._now() * 1_000_000)
        return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]

    # ---- hashes ---------------------------------------------------------------------------------

    def _do_hget(self, args: Args) -> bytes | None:
        return self.hash(args[0]).get(args[1])

    def _do_hmget(self, args: Args) -> list[bytes | None]:
        get = self.hash(args[0]).get
        return [get(name) for name in args[1:]]

    def _do_hgetall(self, args: Args) -> list[bytes]:
        return [part for pair in self.hash(args[0]).items() for part in pair]

    def _do_hkeys(self, args: Args) -> list[bytes]:
        return list(self.hash(args[0]))

    def _do_hlen(self, args: Args) -> int:
        return len(self.hash(args[0]))

    def _do_hexists(self, args: Args) -> int:
        return int(args[1] in self.hash(args[0]))

    def _do_hstrlen(self, args: Args) -> int:
        return len(self.hash(args[0]).get(args[1], b""))

    def _do_hscan(self, args: Args) -> list[bytes | list[bytes]]:
        # All at once, as a real one does with a small hash.
        return [b"0", self._do_hgetall(args[:1])]

    def _do_hset(self, args: Args) -> int:
        fields = self.hash(args[0])
        if not fields:
            self.keys[args[0]] = fields
        before = len(fields)
        fields.update(zip(args[1::2], args[2::2], strict=True))
        return len(fields) - before

    def _do_hsetnx(self, args: Args) -> int:
        if args[1] in self.hash(args[0]):
            return 0
        return self._do_hset(args)

    def _do_hdel(self, args: Args) -> int:
        fields = self.hash(args[0])
        gone = sum(fields.pop(name, None) is not None for name in args[1:])
        if gone and not fields:
            del self.keys[args[0]]
        return gone

    def _do_hrandfield(self, args: Args) -> list[bytes]:
        # WITHVALUES. The first ones are as good as any.
        pairs = list(self.hash(args[0]).items())[: int(args[1])]
        return [part for pair in pairs for part in pair]

    # ---- sorted sets ----------------------------------------------------------------------------

    def _do_zadd(self, args: Args) -> int:
        found = self.sorted_set(args[0])
        self.keys[args[0]] = found
        before = len(found.scores)
        for score, member in zip(args[1::2], args[2::2], strict=True):
            found.remove(member)
            found.scores[member] = int(score)
            insort(found.order, (int(score), member))
        return len(found.scores) - before

    def _do_zrem(self, args: Args) -> int:
        found = self.sorted_set(args[0])
        gone = sum(found.remove(member) for member in args[1:])
        self._end_if_empty(args[0], found)
        return gone

    def _do_zremrangebyrank(self, args: Args) -> int:
        found = self.sorted_set(args[0])
        gone = found.order[int(args[1]) : int(args[2]) + 1]
        for _, member in gone:
            found.remove(member)
        self._end_if_empty(args[0], found)
        return len(gone)

    def _do_zscore(self, args: Args) -> bytes | None:
        score = self.sorted_set(args[0]).scores.get(args[1])
        return None if score is None else b"%d" % score

    def _do_zcard(self, args: Args) -> int:
        return len(self.sorted_set(args[0]).scores)

    def _do_zcount(self, args: Args) -> int:
        found = self.sorted_set(args[0])
        return len(found.order[found.within(args[1], args[2])])

    def _do_zrange(self, args: Args) -> list[bytes]:
        # By rank: a start from 0 on, and a stop that may be -1.
        found = self.sorted_set(args[0]).order
        stop = int(args[2]) + 1 or len(found)
        return _members(found[int(args[1]) : stop], args)

    def _do_zrangebyscore(self, args: Args) -> list[bytes]:
        found = self.sorted_set(args[0])
        within = found.order[found.within(args[1], args[2])]
        if b"LIMIT" in args:
            at = args.index(b"LIMIT")
            within = within[int(args[at + 1]) :][: int(args[at + 2])]
        return _members(within, args)

    def _end_if_empty(self, key: bytes, found: SortedSet) -> None:
        if not found.scores:
            self.keys.pop(key, None)

    # ---- streams --------------------------------------------------------------------------------

    def _do_xadd(self, args: Args) -> bytes:
        key, rest = args[0], list(args[1:])
        keep = None
        if rest[0] == b"MAXLEN":
            keep, rest = int(rest[2]), rest[3:]
        stream = self.stream(key)
        if rest[0] == b"*":
            now_ms = round(self._now() * 1_000_000) // 1000  # of the TIME that scripts are told
            last = stream.last
            new = (now_ms, 0) if now_ms > last[0] else (last[0], last[1] + 1)
        else:
            new = _id(rest[0])
        if new <= stream.last:
            raise CommandError("the id is not above the last one")
        self.keys[key] = stream
        stream.entries.append(StreamEntry(new, rest[1:]))
        stream.last = new
        if keep is not None and len(stream.entries) >= keep + NODE_ENTRIES:
            del stream.entries[:-keep]
        return _text(new)

    def _do_xrange(self, args: Args) -> list[Reply]:
        entries = self.stream(args[0]).entries
        found = entries[_low(entries, args[1]) : _high(entries, args[2])]
        return [_reply(entry) for entry in found[: _count(args)]]

    def _do_xrevrange(self, args: Args) -> list[Reply]:
        entries = self.stream(args[0]).entries
        found = entries[_low(entries, args[2]) : _high(entries, args[1])]
        return [_reply(entry) for entry in found[::-1][: _count(args)]]

    def _do_xread(self, args: Args) -> list[Reply] | None:
        """Answer at once; a blocked caller asks again when something was added."""
        key, last = args[-2:]
        entries = self.stream(key).entries
        found = entries[_low(entries, b"(" + last) :]
        if not found:
            return None
        limit = int(args[args.index(b"COUNT") + 1])
        return [[key, [_reply(entry) for entry in found[:limit]]]]

    def _do_xtrim(self, args: Args) -> int:
        # XTRIM key MINID ~|= id [LIMIT n]
        entries = self.stream(args[0]).entries
        gone = _low(entries, args[3])
        if args[2] == b"~":
            limit = int(args[5]) if len(args) > 5 else gone
            gone = min(gone, limit) // NODE_ENTRIES * NODE_ENTRIES
        del entries[:gone]
        return gone


def _members(found: list[tuple[int, bytes]], args: Args) -> list[bytes]:
    if b"WITHSCORES" not in args:
        return [member for _, member in found]
    return [part for score, member in found for part in (member, b"%d" % score)]


def _id(text: bytes) -> Id:
    first, _, second = text.partition(b"-")
    return int(first), int(second or 0)


def _text(entry_id: Id) -> bytes:
    return b"%d-%d" % entry_id


def _reply(entry: StreamEntry) -> list[Reply]:
    return [_text(entry.id), list(entry.fields)]


def _low(entries: list[StreamEntry], text: bytes) -> int:
    if text == b"-":
        return 0
    if text.startswith(b"("):
        return bisect_right(entries, _id(text[1:]), key=lambda entry: entry.id)
    return bisect_left(entries, _id(text), key=lambda entry: entry.id)


def _high(entries: list[StreamEntry], text: bytes) -> int:
    if text == b"+":
        return len(entries)
    return bisect_right(entries, _id(text), key=lambda entry: entry.id)


def _count(args: Args) -> int | None:
    return int(args[4]) if len(args) > 4 else None


# ---- Lua ----------------------------------------------------------------------------------------


class CompiledScript(NamedTuple):
    """A script, ready to run."""

    name: str
    function: Any


_PRELUDE: Final = b"""
return function(ask, sha1hex, decode, encode)
  -- A list comes, and goes, as `true` and then its items: that is cheaper than a table.
  local function take(first, ...)
    if first == true then
      return {...}
    end
    return first
  end
  local function give(answer)
    if type(answer) == "table" then
      return true, unpack(answer)
    end
    return answer
  end
  redis = {call = function(...) return take(ask(...)) end, sha1hex = sha1hex}
  cjson = {decode = decode, encode = encode}
  return function(script)
    return function(key_count, ...)
      local all, keys, args = {...}, {}, {}
      for at = 1, key_count do
        keys[at] = all[at]
      end
      for at = key_count + 1, #all do
        args[at - key_count] = all[at]
      end
      return give(script(keys, args))
    end
  end
end
"""


def _sha1hex(text: bytes) -> bytes:
    return sha1(text, usedforsecurity=False).hexdigest().encode()


def _encode_json(text: bytes) -> bytes:
    """Return a text as JSON: no script of partq encodes anything else."""
    return json.dumps(text.decode(), ensure_ascii=False).encode()


class _Lua:
    """The interpreter that all servers of this process share: it keeps nothing between runs."""

    def __init__(self) -> None:
        self._runtime = lua51.LuaRuntime(
            encoding=None, register_eval=False, unpack_returned_tuples=True
        )
        self._table = self._runtime.table_from
        self._compiled: dict[tuple[str, str], CompiledScript] = {}
        self._server: MemoryRedis | None = None
        self._callable = self._runtime.execute(_PRELUDE)(
            self._call, _sha1hex, self._decode_json, _encode_json
        )

    def compile(self, name: str, source: str) -> CompiledScript:
        """Return a script by its source, compiled once."""
        known = self._compiled.get((name, source))
        if known is None:
            body = source.partition("\n")[2] if source.startswith("#!lua") else source
            text = f"return function(KEYS, ARGV)\n{body}\nend"
            known = CompiledScript(name, self._callable(self._runtime.execute(text.encode())))
            self._compiled[name, source] = known
        return known

    def run(self, server: MemoryRedis, script: CompiledScript, keys: Args, args: Args) -> Reply:
        """Run a script on a server."""
        self._server = server
        answer = script.function(len(keys), *keys, *args)
        kind = type(answer)
        if kind is bytes or kind is int:
            return answer
        if kind is tuple:
            return self._list(answer[1:])
        if answer is True:
            return []
        return self._from_lua(answer)

    def _call(self, name: bytes, *args: Any) -> Reply:
        assert self._server is not None  # noqa: S101  only `run` calls Lua
        answer = self._server.command(
            name, [arg if type(arg) is bytes else b"%d" % arg for arg in args]
        )
        kind = type(answer)
        if kind is bytes or kind is int:
            return answer
        if kind is list:
            return (True, *[each if type(each) is bytes else self._to_lua(each) for each in answer])
        return self._to_lua(answer)

    def _decode_json(self, text: bytes) -> object:
        return self._json_to_lua(json.loads(text))

    def _json_to_lua(self, value: object) -> object:
        match value:
            case str():
                return value.encode()
            case list():
                return self._table([self._json_to_lua(each) for each in value])
            case dict():
                return self._table({k.encode(): self._json_to_lua(v) for k, v in value.items()})
            case _:
                return value

    def _to_lua(self, value: Any) -> Reply:
        if value is None:
            return False
        if type(value) is list:
            to_lua = self._to_lua
            return self._table([v if type(v) is bytes else to_lua(v) for v in value])
        return value

    def _from_lua(self, value: Any) -> Reply:
        kind = type(value)
        if kind is bytes or kind is int:
            return value
        if kind is float:
            return int(value)
        if value is None or value is False:
            return None
        return self._list([value[at] for at in range(1, len(value) + 1)])

    def _list(self, parts: Sequence[Any]) -> list[Reply]:
        """Return what a list of Lua means: as in Redis, it ends before the first nil."""
        if None in parts:
            parts = parts[: parts.index(None)]
        return [self._from_lua(each) for each in parts]


_LUA = _Lua()
compile_script = _LUA.compile
