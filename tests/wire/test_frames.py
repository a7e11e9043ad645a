"""The bytes of every frame never change once released, and hostile ones end as our errors."""

import struct
import typing

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partq.errors import BadFrameError
from partq.wire import frames
from partq.wire.frames import (
    AcceptSession,
    Ack,
    AckConfirmed,
    AckRefused,
    AskBack,
    Assigned,
    Begun,
    Bind,
    Bound,
    CancelAccept,
    CloseSession,
    Credit,
    Deliver,
    Failed,
    InProgress,
    Lanes,
    Leave,
    Moved,
    Nack,
    Paused,
    Ping,
    Pong,
    ProducerHello,
    ProducerWelcome,
    Publish,
    Published,
    PublishRefused,
    ReadState,
    Release,
    RenewSession,
    Resumed,
    Returned,
    Revoked,
    Rewound,
    Seek,
    SeekRefused,
    SessionAccepted,
    SessionClosed,
    SessionLost,
    SessionRefused,
    SessionRenewed,
    Sought,
    Standing,
    State,
    StateRefused,
    Withhold,
)

# Epochs are milliseconds of Redis's time: they do not fit into 32 bits.
EPOCH = 1_767_225_600_000
EPOCH_HEX = "cf0000019b76daa800"
NEXT_HEX = "cf0000019b76daa801"

GOLDEN = [
    (Ping(7), "03000000 92 01 07"),
    (Pong(2**32), "0b000000 92 02 cf0000000100000000"),
    (Moved(1, 3, "b-0", "http://b-0:7411"),
     "18000000 95 03 01 03 a3622d30 af687474703a2f2f622d303a37343131"),
    (Failed("not_listed", "bind again", 1000),
     "1b000000 94 04 aa6e6f745f6c6973746564 aa62696e6420616761696e cd03e8"),
    (ProducerHello("p-1", layout=2), "08000000 94 0a a3702d31 01 02"),
    (ProducerWelcome("b-0", 3000, 5_242_880, 5, ["atomic"]),
     "17000000 96 0b a3622d30 cd0bb8 ce00500000 05 91 a661746f6d6963"),
    (
        Publish(1, 1, 3, 128, 60_000, 7, "a", 5, 6),
        "0f000000 9a 0c 01 01 03 cc80 cdea60 07 a161 05 06",
    ),
    (Published(1, 70_000, True, True, 7), "0b000000 96 0d 01 ce00011170 c3 c3 07"),
    (PublishRefused(2, "out_of_sequence", "127 is due", 0, 127),
     "20000000 96 0e 02 af6f75745f6f665f73657175656e6365 aa31323720697320647565 00 7f"),
    (Bind("m", "x1", 1000, [(1, 0), (1, 15)], credit_bytes=4096, priority=3, wants_standing=True,
          takes_lanes=True, ranges=[(0, 4096)]),
     "20000000 9d 14 a16d a27831 cd03e8 92920100 92010f 01 cd1000 03 c3 c3 91 9200cd1000 c2 c2"),
    (Bound("b-0", 12, 3000), "14000000 9e 15 a3622d30 0c cd0bb8 c2 c2 c2 c2 c2 c2 c2 c2 c2 90"),
    (Assigned(1, 3, EPOCH, EPOCH + 1, 17, frames.KEYED),
     f"18000000 97 16 01 03 {EPOCH_HEX} {NEXT_HEX} 11 02"),
    (Paused(1, 3, EPOCH, EPOCH + 1), f"16000000 95 17 01 03 {EPOCH_HEX} {NEXT_HEX}"),
    (Resumed(1, 3, EPOCH, EPOCH + 1), f"16000000 95 18 01 03 {EPOCH_HEX} {NEXT_HEX}"),
    (Revoked(1, 3, EPOCH, EPOCH + 1, 2), f"17000000 96 19 01 03 {EPOCH_HEX} {NEXT_HEX} 02"),
    (Deliver(1, 3, EPOCH, EPOCH + 1, 2, EPOCH - 1, EPOCH + 2, 100, 101, 109, 1,
             [(102, 104), (106, 107)], [(101, 2)], 0, "p", 70, b"\x85", b"\x00\x02\x00"),
     f"46000000 dc0013 1a 01 03 {EPOCH_HEX} {NEXT_HEX} 02 cf0000019b76daa7ff cf0000019b76daa802"
     " 64 65 6d 01 92926668 926a6b 91926502 00 a170 46 c40185 c403000200"),
    (Credit(250, 4096), "07000000 93 1b ccfa cd1000"),
    (Ack(9, 1, 3, EPOCH, EPOCH + 1, 2, 101, [(104, 106)]),
     f"1f000000 9b 1c 09 01 03 {EPOCH_HEX} {NEXT_HEX} 02 65 9192686a c0 c0"),
    (AckConfirmed(9), "03000000 92 1d 09"),
    (AckRefused(9, "fenced", "gone"), "0f000000 94 1e 09 a666656e636564 a4676f6e65"),
    (Release(1, 3, EPOCH, EPOCH + 1, 2, 107),
     f"18000000 97 1f 01 03 {EPOCH_HEX} {NEXT_HEX} 02 6b"),
    (Leave(), "02000000 91 20"),
    (Nack(9, 1, 3, EPOCH, EPOCH + 1, 2, [(104, 106)], 1500, "undecodable", 107),
     f"2f000000 9e 21 09 01 03 {EPOCH_HEX} {NEXT_HEX} 02 9192686a cd05dc"
     " ab756e6465636f6461626c65 6b c2 c2 a0"),
    (Rewound(1, 3, EPOCH, EPOCH + 1, 3, 104, 6),
     f"19000000 98 22 01 03 {EPOCH_HEX} {NEXT_HEX} 03 68 06"),
    (Standing(1, 3, True), "05000000 94 24 01 03 c3"),
    (Seek(9, 1, 3, EPOCH, EPOCH + 1, offset=17, append_broker_epoch=EPOCH - 1),
     f"23000000 9a 25 09 01 03 {EPOCH_HEX} {NEXT_HEX} a0 ff 11 cf0000019b76daa7ff"),
    (Sought(9, 17), "04000000 93 26 09 11"),
    (SeekRefused(9, "fenced", "gone", 1000),
     "12000000 95 27 09 a666656e636564 a4676f6e65 cd03e8"),
    (Withhold(1, 3, EPOCH, EPOCH + 1, True),
     f"17000000 96 28 01 03 {EPOCH_HEX} {NEXT_HEX} c3"),
    (InProgress(9, 1, 3, EPOCH, EPOCH + 1, 2, [(101, 107)]),
     f"1c000000 98 29 09 01 03 {EPOCH_HEX} {NEXT_HEX} 02 9192656b"),
    (AskBack(1, 3, EPOCH, EPOCH + 1, 4, [(513, 514)]),
     f"1f000000 97 2a 01 03 {EPOCH_HEX} {NEXT_HEX} 04 9192cd0201cd0202"),
    (Returned(1, 3, EPOCH, EPOCH + 1, 4, [(101, 107)]),
     f"1b000000 97 2b 01 03 {EPOCH_HEX} {NEXT_HEX} 04 9192656b"),
    (Lanes(1, 3, EPOCH, EPOCH + 1, [(513, 514)]),
     f"1e000000 96 2c 01 03 {EPOCH_HEX} {NEXT_HEX} 9192cd0201cd0202"),
    (ReadState(9, 1, 3, EPOCH, EPOCH + 1, "k"),
     f"19000000 97 2e 09 01 03 {EPOCH_HEX} {NEXT_HEX} a16b"),
    (State(9, b"17"), "07000000 93 2f 09 c4023137"),
    (StateRefused(9, "fenced", "gone"), "0f000000 94 30 09 a666656e636564 a4676f6e65"),
    (AcceptSession(9, "s", 1000, EPOCH), f"11000000 95 32 09 a173 cd03e8 {EPOCH_HEX}"),
    (SessionAccepted(9, "s", EPOCH, 1, 3, EPOCH, EPOCH + 1, 60_000),
     f"25000000 99 33 09 a173 {EPOCH_HEX} 01 03 {EPOCH_HEX} {NEXT_HEX} cdea60"),
    (SessionRefused(9, "fenced", "gone", 1000),
     "12000000 95 34 09 a666656e636564 a4676f6e65 cd03e8"),
    (RenewSession(9, 1, 3, EPOCH, EPOCH + 1), f"17000000 96 35 09 01 03 {EPOCH_HEX} {NEXT_HEX}"),
    (SessionRenewed(9, 60_000), "06000000 93 36 09 cdea60"),
    (CloseSession(9, 1, 3, EPOCH, EPOCH + 1, [(101, 107)]),
     f"1b000000 97 37 09 01 03 {EPOCH_HEX} {NEXT_HEX} 9192656b"),
    (SessionClosed(9), "03000000 92 38 09"),
    (SessionLost(1, 3, EPOCH, EPOCH + 1, "s", 3),
     f"19000000 97 39 01 03 {EPOCH_HEX} {NEXT_HEX} a173 03"),
    (CancelAccept(9), "03000000 92 3a 09"),
    (Begun(1, 3, EPOCH, EPOCH + 1, 2, [(101, 107)]),
     f"1b000000 97 23 01 03 {EPOCH_HEX} {NEXT_HEX} 02 9192656b"),
]  # fmt: skip
TABLE = pytest.mark.parametrize(
    ("frame", "text"), [pytest.param(*row, id=type(row[0]).__name__) for row in GOLDEN]
)
ALL = set(typing.get_args(frames.AnyFrame))


def wrap(header, payload=b""):
    """A frame around the bytes of a header."""
    return struct.pack("<I", len(header)) + header + payload


def header_of(text):
    return bytes.fromhex(text)[4:]


# ---- golden bytes -------------------------------------------------------------------------------


def test_every_frame_is_in_the_table():
    assert sorted(type(frame).__name__ for frame, _ in GOLDEN) == sorted(f.__name__ for f in ALL)
    assert {kind for kind in vars(frames).values() if _is_frame(kind)} == ALL


def _is_frame(value):
    return isinstance(value, type) and issubclass(value, frames.Frame) and value is not frames.Frame


@TABLE
def test_golden(frame, text):
    golden = bytes.fromhex(text)
    assert frames.encode(frame) == golden
    assert frames.decode(golden) == (frame, b"")


@TABLE
def test_what_follows_the_header_is_the_payload(frame, text):
    payload = b"\x00\xff payload"
    data = frames.encode(frame, payload)
    assert data == bytes.fromhex(text) + payload
    assert frames.decode(data) == (frame, payload)


@TABLE
def test_elements_that_a_later_version_adds_are_ignored(frame, text):
    header = header_of(text)
    more = b"\xc0\x2a\x81\xa1a\x91\xc3\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"  # null, 42, map, 1.0
    count = len(msgspec.msgpack.decode(header))
    elements = header[1 if count < 16 else 3 :]
    longer = b"\xdc" + (count + 4).to_bytes(2, "big") + elements + more
    assert frames.decode(wrap(longer)) == (frame, b"")


@pytest.mark.parametrize(("text", "frame"), [
    ("93 04 a165 a16d", Failed("e", "m", 0)),
    ("92 0a a170", ProducerHello("p", 1, 0)),
    ("93 0a a170 01", ProducerHello("p", 1, 0)),
    ("95 0c 01 01 03 cc80", Publish(1, 1, 3, 128, 0, 0)),
    ("96 0c 01 01 03 cc80 cdea60", Publish(1, 1, 3, 128, 60_000, 0)),
    ("97 0c 01 01 03 cc80 cdea60 07", Publish(1, 1, 3, 128, 60_000, 7)),
    ("98 0c 01 01 03 cc80 cdea60 07 a161", Publish(1, 1, 3, 128, 60_000, 7, "a")),
    ("93 0d 01 05", Published(1, 5, False)),
    ("94 0d 01 05 c3", Published(1, 5, True)),
    ("94 0e 01 a165 a16d", PublishRefused(1, "e", "m", 0, -1)),
    ("94 14 a16d a178 01", Bind("m", "x", 1, [], 1)),
    ("97 14 a16d a178 01 90 01 05", Bind("m", "x", 1, [], 1, 5, 0, False)),
    ("9b 1a 01 03 05 06 00 05 07 00 01 02", Deliver(1, 3, 5, 6, 0, 5, 7, 0, 1, 2, 0, [], [])),
    ("9f 1a 01 03 05 06 00 05 07 00 01 02 01 90 90 09",
     Deliver(1, 3, 5, 6, 0, 5, 7, 0, 1, 2, 1, [], [], 9, "", -1)),
    ("97 15 a3622d30 0c cd0bb8 c3 c3 c3", Bound("b-0", 12, 3000, True, True, True, False, False)),
    ("9d 15 a3622d30 0c cd0bb8 c2 c2 c2 c2 c2 c2 c2 c2 c3", Bound("b-0", 12, 3000, False, False,
     False, False, False, False, False, False, True, [])),
    ("95 0b a3622d30 cd0bb8 ce00500000 05", ProducerWelcome("b-0", 3000, 5_242_880, 5, [])),
    ("9c 21 01 01 03 05 06 00 90 ff a0 ff c2", Nack(1, 1, 3, 5, 6, 0, [], -1, "", -1, False)),
    ("99 14 a16d a178 01 90 01 05 00 c2", Bind("m", "x", 1, [], 1, 5, 0, False, False)),
    ("96 16 01 03 05 06 11", Assigned(1, 3, 5, 6, 17, frames.EXCLUSIVE)),
    ("97 1c 01 01 03 05 06 00", Ack(1, 1, 3, 5, 6, 0, -1, [])),
])  # fmt: skip
def test_elements_with_a_default_may_be_missing(text, frame):
    assert frames.decode(wrap(bytes.fromhex(text))) == (frame, b"")


# ---- whatever goes in comes out -----------------------------------------------------------------

BY_TYPE = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(max_size=60),
    bool: st.booleans(),
    bytes: st.binary(max_size=60),
    str | None: st.none() | st.text(max_size=60),
    bytes | None: st.none() | st.binary(max_size=60),
    list[str]: st.lists(st.text(max_size=20), max_size=3),
    list[tuple[int, int]]: st.lists(st.tuples(st.integers(0, 2**53), st.integers(0, 2**53))),
}


def any_of(kind):
    hints = typing.get_type_hints(kind)
    return st.builds(kind, *(BY_TYPE[hints[name]] for name in kind.__struct_fields__))


@settings(deadline=None)
@given(st.sampled_from(sorted(ALL, key=lambda kind: kind.__name__)).flatmap(any_of), st.binary())
def test_round_trip(frame, payload):
    assert frames.decode(frames.encode(frame, payload)) == (frame, payload)


# ---- hostile bytes ------------------------------------------------------------------------------


@TABLE
def test_a_frame_that_is_cut_off_anywhere_is_refused(frame, text):
    golden = bytes.fromhex(text)
    for size in range(len(golden)):
        with pytest.raises(BadFrameError):
            frames.decode(golden[:size])


@TABLE
def test_an_element_of_another_type_is_refused(frame, text):
    header = msgspec.msgpack.decode(header_of(text))
    hints = typing.get_type_hints(type(frame))
    kinds = [int, *(hints[name] for name in frame.__struct_fields__)]
    for place, right in enumerate(header):
        for wrong in (None, 1.5, "text" if isinstance(right, bytes) else b"bytes", {"a": 1}, [[1]]):
            if kinds[place] in (str | None, bytes | None) and isinstance(wrong, kinds[place]):
                continue
            changed = [*header[:place], wrong, *header[place + 1 :]]
            with pytest.raises(BadFrameError):
                frames.decode(wrap(msgspec.msgpack.encode(changed)))


@TABLE
def test_too_few_elements_are_refused(frame, text):
    header = msgspec.msgpack.decode(header_of(text))
    required = len(frame.__struct_fields__) - len(frame.__struct_defaults__)
    for count in range(required + 1):
        with pytest.raises(BadFrameError):
            frames.decode(wrap(msgspec.msgpack.encode(header[:count])))


@pytest.mark.parametrize(("data", "words"), [
    pytest.param(b"", "got 0 bytes, expected at least 4", id="nothing"),
    pytest.param(b"\x00\x00\x00", "got 3 bytes", id="half a length"),
    pytest.param(wrap(b""), "", id="an empty header"),
    pytest.param(b"\xff\xff\xff\xff\x92\x01\x07", "4294967295 bytes does not fit 7",
                 id="an absurd length"),
    pytest.param(b"\x04\x00\x00\x00\x92\x01\x07", "4 bytes does not fit 7", id="a byte short"),
    pytest.param(wrap(bytes(frames.MAX_HEADER_BYTES + 1)), "does not fit",
                 id="a header above the limit"),
    pytest.param(wrap(b"\x92\x63\x07"), "", id="an unknown kind"),
    pytest.param(wrap(b"\x92\xa1p\x07"), "", id="a kind that is text"),
    pytest.param(wrap(b"\x81\x01\x07"), "", id="a map"),
    pytest.param(wrap(b"\x07"), "", id="a number"),
    pytest.param(wrap(b"\xc1"), "", id="no MessagePack"),
    pytest.param(wrap(b"\x92\x01\x07\x00"), "", id="bytes behind the array"),
    pytest.param(wrap(b"\x92\x0a\xa2\xffp"), "", id="text that is not UTF-8"),
    pytest.param(wrap(b"\x93\x01\x07" + b"\x91" * 100_000 + b"\xc0"), "", id="nested deeply"),
    pytest.param(wrap(b"\x93\x01\x07\xdd\xff\xff\xff\xff"), "", id="four billion elements"),
    pytest.param(wrap(b"\x99\x1c\x01\x01\x03\x05\x06\x00\x01\xdd\xff\xff\xff\xff"), "",
                 id="four billion ranges"),
    pytest.param(wrap(b"\x99\x1c\x01\x01\x03\x05\x06\x00\x01\x91\x93\x01\x02\x03"), "",
                 id="a range of three"),
])  # fmt: skip
def test_broken_frames_are_refused(data, words):
    with pytest.raises(BadFrameError, match=words or "^frame: "):
        frames.decode(data)


def test_the_largest_header_is_taken():
    text = "x" * (frames.MAX_HEADER_BYTES - 9)
    data = frames.encode(AckRefused(1, "", text))
    assert struct.unpack_from("<I", data) == (frames.MAX_HEADER_BYTES,)
    assert frames.decode(data)[0].message == text


def test_the_skips_of_a_whole_batch_fit_into_a_header():
    every_other = [(2**40 + offset, 2**40 + offset + 1) for offset in range(0, 65_536, 2)]
    frame = Deliver(1, 3, EPOCH, EPOCH, 0, EPOCH, EPOCH, 2**40, 2**40, 2**40 + 65_536, 1,
                    every_other)  # fmt: skip
    assert frames.decode(frames.encode(frame))[0].skip == every_other


# ---- bytes that nobody thought of ---------------------------------------------------------------


def judge(data):
    """Decode as brokers and clients do; nothing but our error may come."""
    try:
        frame, payload = frames.decode(data)
    except BadFrameError:
        return
    assert type(frame) in ALL
    assert data.endswith(payload)


@settings(deadline=None, max_examples=500)
@given(
    st.sampled_from([text for _, text in GOLDEN]),
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 3), st.binary(max_size=5)),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_mutations_end_as_our_errors(text, edits, is_length_repaired):
    data = bytearray.fromhex(text)
    for at, length, piece in edits:
        data[at : at + length] = piece
    judge(wrap(bytes(data[4:])) if is_length_repaired else bytes(data))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 40), st.lists(VALUES, max_size=16))
@example(28, [0, 0, 0, 2**64 - 1, 0, 0, -1, [[0, 2**64 - 1]]])
def test_any_elements_end_as_our_errors(tag, elements):
    judge(wrap(msgspec.msgpack.encode([tag, *elements])))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_as_our_errors(data):
    judge(data)
    judge(wrap(data))
