"""A mistake as a change of the running code, or of the text of a script."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha1
from typing import Any, NamedTuple

import pytest

from partq.lab.simulate.schedule import Event, Schedule, draw_schedule
from partq.store import lua as lua_files

EVENT_COUNT = 20
FORGET = (
    Event(1.6, "redis_rollback", {"for_s": 0.1, "lost_s": 0.8}),
    Event(3.0, "post", {"count": 1}),
)
"""The store forgets what it has written since 0.8 s, and brokers have time to find out."""

DRAWN = 'math.max(tonumber(last or "0") + 1, now_ms)'
"""How scripts draw numbers of which none is used twice."""
FROM_MEMORY = (DRAWN, 'tonumber(last or "0") + 1')
"""They count on from what is stored."""

Apply = Callable[[pytest.MonkeyPatch], None]


class Mutation(NamedTuple):
    """One mistake, and what is violated by it."""

    name: str
    apply: Apply
    violates: frozenset[str]
    faults: frozenset[str] | Callable[[int], tuple[Event, ...]]
    """What brings it to light: kinds of faults to draw from, or by a seed the events themselves."""
    setting: dict[str, Any]

    def schedule(self, seed: int) -> Schedule:
        """Return a schedule that may bring it to light."""
        if isinstance(self.faults, frozenset):
            return draw_schedule(seed, EVENT_COUNT, only=self.faults, **self.setting)
        drawn = draw_schedule(seed, 0, **self.setting)
        return replace(drawn, events=self.faults(seed))


def lua(script: str, *changes: tuple[str, str]) -> Apply:
    """Change the text of a script."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        load = lua_files.load_scripts  # another mistake may be in it

        def mutated(version: tuple[int, ...]) -> Any:
            scripts = dict(load(version))
            source = scripts[script].source
            for before, after in changes:
                assert before in source, before
                source = source.replace(before, after)
            sha = sha1(source.encode(), usedforsecurity=False).hexdigest()
            scripts[script] = replace(scripts[script], source=source, sha=sha)
            return scripts

        monkeypatch.setattr(lua_files, "load_scripts", mutated)

    return apply


def both(*parts: Apply) -> Apply:
    """Apply one after the other: some mistakes show only where the next guard fails as well."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        for part in parts:
            part(monkeypatch)

    return apply


def code(owner: Any, name: str, value: Any) -> Apply:
    """Put something else in the place of a function."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def text(owner: Any, name: str, *changes: tuple[str, str]) -> Apply:
    """Change the text of a function."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        function = getattr(owner, name)
        source = textwrap.dedent(inspect.getsource(function))
        for before, after in changes:
            assert before in source, before
            source = source.replace(before, after)
        found: dict[str, Any] = {}
        exec(source, function.__globals__, found)  # our own text
        monkeypatch.setattr(owner, name, found[name])

    return apply
