"""Files that fail in the middle of a job, as if its process had been killed there."""

from collections.abc import Sequence

from partq.pipeline.storage.files import Files

CHANGES = ("create", "move", "remove")


class Crash(BaseException):
    """The process is gone: nothing that handles errors may notice it."""


class CrashingFiles:
    """Passes calls on; the change of a number fails, before it is made or right after it.

    After the crash nothing is changed any more: what a dead process would not do in its `finally`.
    """

    def __init__(self, files: Files, *, at: int, is_done: bool) -> None:
        self._files = files
        self._left = at
        self._is_done = is_done
        self.root = files.root
        self.has_crashed = False

    def __getattr__(self, name):
        call = getattr(self._files, name)
        if name not in CHANGES:
            return call

        def change(*arguments):
            if self.has_crashed:
                raise Crash
            self._left -= 1
            if self._left >= 0:
                return call(*arguments)
            self.has_crashed = True
            if self._is_done:
                call(*arguments)
            raise Crash

        return change


def crash_points(numbers: Sequence[int]) -> list[tuple[int, bool]]:
    """Return the points before and after each of these changes, counted from 0."""
    return [(at, is_done) for at in numbers for is_done in (False, True)]
