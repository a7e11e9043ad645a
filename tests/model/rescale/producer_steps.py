"""What a pipelining producer does: send, await answers, send again, and follow a moved slot."""

from collections.abc import Iterator

from tests.model.explorer import Step
from tests.model.rescale.cluster_state import LIVE, REMOVED, Batch, Pipeline, Sent, State, is_moving
from tests.model.rescale.scenarios import Scenario

MAX_IN_FLIGHT = 2


class ProducerSteps:
    """A producer with one pipeline per partition. It numbers its messages from 0 in each."""

    def __init__(self, scenario: Scenario, mutant: str) -> None:
        self._scenario = scenario
        self._mutant = mutant
        self._messages = messages_of(scenario)

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what the producer can do, and the loss of its connections."""
        if state.published < len(self._messages):
            yield self._publish(state)
        if state.known_layout < state.layout:
            after = state._replace(known_layout=state.known_layout + 1)
            yield Step("the producer reads the layout", after)
        for index, pipeline in enumerate(state.pipelines):
            life = state.partitions[index].life
            in_flight = sum(sent.is_in_flight for sent in pipeline.window)
            must_move = state.route == index < state.known_layout
            if life == REMOVED and must_move and not in_flight:
                yield from self._move(state, index, pipeline)
            if life != LIVE:
                continue
            if pipeline.answers:
                yield self._take_answer(state, index, pipeline)
            if in_flight and state.faults.lost_connections:
                yield self._lose_connection(state, index, pipeline)
            if not pipeline.is_rewinding and in_flight < MAX_IN_FLIGHT:
                yield from self._send(state, index, pipeline, must_move, in_flight)
            # Only a definite answer to the head tells that nothing of the window is stored.
            is_head_in_doubt = bool(pipeline.window) and pipeline.window[0].is_in_doubt
            is_settled = not in_flight and not is_head_in_doubt
            if must_move and (is_settled or self._mutant == "move_in_doubt"):
                yield from self._move(state, index, pipeline)

    def _publish(self, state: State) -> Step:
        """The application publishes its next message."""
        message = self._messages[state.published]
        route = state.known_layout if self._mutant == "route_at_once" else state.route
        index = route if is_moving(message) else 0
        pipeline = state.pipelines[index]
        number = pipeline.next_number
        grown = pipeline._replace(
            next_number=number + 1, window=(*pipeline.window, Sent(message, number))
        )
        after = state.with_pipeline(index, grown)._replace(published=state.published + 1)
        return Step(f"the application publishes {message}", after)

    def _send(
        self, state: State, index: int, pipeline: Pipeline, must_move: bool, in_flight: int
    ) -> Iterator[Step]:
        """The first batch that is not in flight is sent.

        To a partition that the slot leaves, only the head in doubt is sent, alone.
        """
        window = pipeline.window
        place = next((at for at, sent in enumerate(window) if not sent.is_in_flight), None)
        if place is None:
            return
        if must_move and (place or in_flight or not window[0].is_in_doubt):
            return
        sent = window[place]
        after = pipeline._replace(
            window=with_sent(window, place, sent._replace(is_in_flight=True)),
            requests=(*pipeline.requests, Batch(pipeline.producer_id, sent.number, sent.message)),
        )
        label = f"the producer sends {sent.message} to {index} as number {sent.number}"
        yield Step(label, state.with_pipeline(index, after))

    def _take_answer(self, state: State, index: int, pipeline: Pipeline) -> Step:
        """The producer takes the next answer of a connection."""
        (number, answer), *others = pipeline.answers
        pipeline = pipeline._replace(answers=tuple(others))
        window = pipeline.window
        label = f"the producer takes the answer {answer} of {index} for number {number}"
        place = next((at for at, s in enumerate(window) if s.number == number), None)
        if place is None or not window[place].is_in_flight:
            return Step(label, state.with_pipeline(index, pipeline))  # the mutant has let it go
        sent = window[place]._replace(is_in_flight=False)
        confirmed, known_layout = state.confirmed, state.known_layout
        is_rewinding = pipeline.is_rewinding
        if answer == "stored" and place == 0 and not is_rewinding:
            confirmed = tuple(sorted((*confirmed, sent.message)))
            window = window[1:]
        elif answer == "stored":
            window = with_sent(window, place, sent._replace(is_in_doubt=True))
        else:
            is_rewinding = True
            if answer == "moved":
                sent = sent._replace(is_in_doubt=False)
                known_layout = max(known_layout, index + 1)
            window = with_sent(window, place, sent)
        if not any(each.is_in_flight for each in window):
            is_rewinding = False
        pipeline = pipeline._replace(window=window, is_rewinding=is_rewinding)
        after = state.with_pipeline(index, pipeline)
        return Step(label, after._replace(confirmed=confirmed, known_layout=known_layout))

    def _lose_connection(self, state: State, index: int, pipeline: Pipeline) -> Step:
        """A connection is lost; the broker goes on with what it has got."""
        partition = state.partitions[index]
        chain = tuple(append._replace(is_answered=False) for append in partition.chain)
        faults = state.faults._replace(lost_connections=state.faults.lost_connections - 1)
        after = (
            state.with_partition(index, partition._replace(chain=chain))
            .with_pipeline(index, after_lost_connection(pipeline))
            ._replace(faults=faults)
        )
        return Step(f"the connection to {index} is lost", after, is_fault=True)

    def _move(self, state: State, index: int, pipeline: Pipeline) -> Iterator[Step]:
        """The window is cut by slot: what stays is numbered again, what moves is appended to
        the pipeline of the successor."""
        moved = [sent for sent in pipeline.window if is_moving(sent.message)]
        kept = [sent for sent in pipeline.window if not is_moving(sent.message)]
        if self._mutant == "move_in_doubt":
            if any(sent.is_in_flight for sent in kept):
                return  # the mutant is modelled for the plain case alone
            old = abandoned(pipeline, kept)
        else:
            old = (
                self._renumbered(pipeline, kept)
                if moved
                else pipeline._replace(
                    window=tuple(sent._replace(is_in_doubt=False) for sent in kept)
                )
            )
        new = state.pipelines[index + 1]
        added = tuple(Sent(each.message, new.next_number + n) for n, each in enumerate(moved))
        new = new._replace(next_number=new.next_number + len(moved), window=(*new.window, *added))
        after = state.with_pipeline(index, old).with_pipeline(index + 1, new)
        label = f"the producer moves the slot from {index} to {index + 1}"
        yield Step(label, after._replace(route=index + 1))

    def _renumbered(self, pipeline: Pipeline, kept: list[Sent]) -> Pipeline:
        """Return a pipeline with what stays.

        Its numbers go on from the head's. If a copy of any batch of the window may be on its way,
        it would be taken for what has its number now, so another producer id begins at 0.
        """
        producer_id, first = pipeline.producer_id, pipeline.window[0].number
        if any(each.is_in_doubt for each in pipeline.window) and self._mutant != "reuse_numbers":
            producer_id, first = producer_id + 1, 0
        return pipeline._replace(
            producer_id=producer_id,
            next_number=first + len(kept),
            window=tuple(Sent(each.message, first + n) for n, each in enumerate(kept)),
        )


def messages_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the messages that the producer of a scenario publishes, in order."""
    names = {"m": "move", "s": "stay"}
    return tuple(f"{names[kind]}-{n}" for n, kind in enumerate(scenario.publishes))


def with_sent(window: tuple[Sent, ...], place: int, sent: Sent) -> tuple[Sent, ...]:
    """Return a window with one batch changed."""
    return (*window[:place], sent, *window[place + 1 :])


def after_lost_connection(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline whose connection is lost: what has no answer is in doubt.

    Requests that the broker has not got may still arrive, in any order.
    """
    return pipeline._replace(
        window=tuple(
            sent._replace(is_in_doubt=True, is_in_flight=False) if sent.is_in_flight else sent
            for sent in pipeline.window
        ),
        is_rewinding=False,
        requests=(),
        answers=(),
        copies=tuple(sorted({*pipeline.copies, *pipeline.requests})),
    )


def abandoned(pipeline: Pipeline, kept: list[Sent]) -> Pipeline:
    """Return what the mutant `move_in_doubt` leaves: requests under way, without their batches."""
    numbers = {sent.number for sent in kept}
    leaving = {batch for batch in pipeline.requests if is_moving(batch.message)}
    return pipeline._replace(
        window=tuple(kept),
        requests=tuple(batch for batch in pipeline.requests if batch not in leaving),
        answers=tuple(each for each in pipeline.answers if each[0] in numbers),
        copies=tuple(sorted({*pipeline.copies, *leaving})),
    )
