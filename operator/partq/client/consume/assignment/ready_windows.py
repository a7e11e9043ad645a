"""The windows of one flow that may be handed out, in the order of arrival."""

from collections import deque

from partq.client.consume.assignment.assigned_partition import AssignedPartition
from partq.client.consume.assignment.delivered_window import DeliveredWindow


class ReadyWindows:
    """Windows in turn; those whose partition waits are set aside until it continues."""

    def __init__(self) -> None:
        self._windows: deque[DeliveredWindow] = deque()

    def add(self, window: DeliveredWindow) -> None:
        """Take a window that has come."""
        self._windows.append(window)

    def first(self) -> DeliveredWindow | None:
        """Return the first window of which a message may be handed out; None: no window has any."""
        windows = self._windows
        while windows:
            window = windows[0]
            if window.is_done:
                windows.popleft()
            elif window.assigned.waits:
                window.assigned.set_aside.append(windows.popleft())
            elif not window.assigned.held_up or _has_more(window):
                return window
        return None

    def first_of(self, assigned: AssignedPartition) -> DeliveredWindow | None:
        """Return the first window of one partition, as `first` of any."""
        if assigned.waits:
            return None
        # What was taken out of turn would stay behind the windows of another partition.
        self._windows = deque(window for window in self._windows if not window.is_done)
        found = (window for window in self._windows if window.assigned is assigned)
        return next((window for window in found if not assigned.held_up or _has_more(window)), None)

    def put_back(self, assigned: AssignedPartition, windows: list[DeliveredWindow]) -> None:
        """Have windows of a partition in turn again, before what has come since."""
        if assigned.waits:
            assigned.set_aside[:0] = windows
        else:
            self._windows.extendleft(reversed(windows))

    def clear(self) -> None:
        """Forget all."""
        self._windows.clear()


def _has_more(window: DeliveredWindow) -> bool:
    """Have what is held up taken out of a window; return whether something of it is left."""
    window.assigned.hold_back(window)
    return not window.is_done
