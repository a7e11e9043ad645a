"""`partq plan`: the assignment printed, and every wrong input named."""

import json

import pytest
from click.testing import CliRunner

from partq.cli.queues.plan import MAX_INPUT_BYTES, plan
from partq.core.group.assignors import ASSIGNORS


def run(data, *args):
    text = data if isinstance(data, str | bytes) else json.dumps(data)
    return CliRunner().invoke(plan, args, input=text)


def planned(**fields):
    result = run(fields)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_example_of_the_help():
    answer = planned(partitions=16, members=["a", "b"], previous={"0": "a"}, strategy="sticky")
    owners = list(answer["assignment"].values())
    assert list(answer) == ["assignment", "moves"]
    assert list(answer["assignment"]) == [str(index) for index in range(16)]
    assert (answer["assignment"]["0"], answer["moves"]) == ("a", 0)
    assert (owners.count("a"), owners.count("b")) == (8, 8)


def test_previous_and_strategy_may_be_left_out():
    assert planned(partitions=3, members=["a", "b"]) == {
        "assignment": {"0": "a", "1": "a", "2": "b"},
        "moves": 0,
    }


@pytest.mark.parametrize(("members", "previous", "moves"), [
    pytest.param(["a", "b"], {}, 0, id="partitions without a previous owner do not move"),
    pytest.param(["a", "b"], {"0": "a", "1": "a", "2": "a", "3": "a"}, 2, id="two must leave a"),
    pytest.param(["a", "b"], {"0": "gone", "1": "b"}, 1, id="an owner that left"),
    pytest.param([], {"0": "a", "1": "a"}, 2, id="nobody is left"),
])  # fmt: skip
def test_moves(members, previous, moves):
    assert planned(partitions=4, members=members, previous=previous)["moves"] == moves


def test_without_members_nothing_is_assigned():
    assert planned(partitions=4, members=[])["assignment"] == {}


@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_every_strategy(strategy):
    answer = planned(partitions=4, members=["b", "a"], strategy=strategy)
    assert sorted(answer["assignment"].values()) == ["a", "a", "b", "b"]


def test_the_bounds_themselves_are_taken():
    members = [f"{number:0253}" for number in range(10_000)]
    answer = planned(partitions=100_000, members=members, previous={"99999": members[0]})
    assert len(answer["assignment"]) == 100_000
    assert answer["assignment"]["99999"] == members[0]


def test_names_in_any_script():
    assert planned(partitions=1, members=["größe-鍵"])["assignment"] == {"0": "größe-鍵"}


GOOD = {"partitions": 4, "members": ["a"]}


@pytest.mark.parametrize(("data", "sentence"), [
    pytest.param("", "input: got no JSON", id="nothing"),
    pytest.param("{", "input: got no JSON", id="broken JSON"),
    pytest.param(b"\xff{}", "input: got bytes that are not UTF-8", id="not UTF-8"),
    pytest.param("[" * 200_000, "input: got JSON nested too deeply", id="nested"),
    pytest.param(b" " * (MAX_INPUT_BYTES + 1), "input: got more than", id="endless"),
    pytest.param("[]", "input: got [], expected an object", id="no object"),
    pytest.param({}, "partitions: got nothing, expected a whole number", id="empty object"),
    pytest.param(GOOD | {"partitons": 1}, '"partitons": got an unknown field', id="typing error"),
    pytest.param('{"partitions": 1, "partitions": 2}', "name twice in one object", id="twice"),
    pytest.param(GOOD | {"partitions": 0}, "partitions: got 0, expected", id="no partition"),
    pytest.param(GOOD | {"partitions": 100_001}, "from 1 to 100000", id="too many partitions"),
    pytest.param(GOOD | {"partitions": 4.0}, "partitions: got 4.0", id="a fraction"),
    pytest.param(GOOD | {"partitions": True}, "partitions: got true", id="a boolean"),
    pytest.param(GOOD | {"partitions": "4"}, 'partitions: got "4"', id="a text"),
    pytest.param('{"partitions": ' + "9" * 5000 + "}", "input: got no JSON", id="a huge number"),
    pytest.param({"partitions": 4}, "members: got nothing, expected a list", id="no members"),
    pytest.param(GOOD | {"members": "ab"}, 'members: got "ab"', id="members as text"),
    pytest.param(GOOD | {"members": ["a", ""]}, "members[1]: got 0 characters", id="empty name"),
    pytest.param(GOOD | {"members": ["x" * 254]}, "members[0]: got 254 characters", id="long name"),
    pytest.param(GOOD | {"members": [7]}, "members[0]: got 7, expected a name", id="name no text"),
    pytest.param(GOOD | {"members": ["a", "a"]}, 'members[1]: got "a" a second', id="same name"),
    pytest.param(GOOD | {"members": ["a\n"]}, "printable characters only", id="control character"),
    pytest.param(GOOD | {"members": ["\ud800"]}, "printable characters only", id="surrogate"),
    pytest.param(
        GOOD | {"members": [str(n) for n in range(10_001)]},
        "members: got 10001 names, expected at most 10000", id="too many members",
    ),
    pytest.param(GOOD | {"previous": ["a"]}, 'previous: got ["a"]', id="previous as list"),
    pytest.param(GOOD | {"previous": {"4": "a"}}, 'previous: got partition "4"', id="unknown"),
    pytest.param(GOOD | {"previous": {"-1": "a"}}, "a partition from 0 to 3", id="negative"),
    pytest.param(GOOD | {"previous": {"01": "a"}}, 'partition "01"', id="not how we write it"),
    pytest.param(GOOD | {"previous": {"0": None}}, 'previous["0"]: got nothing', id="owner null"),
    pytest.param(GOOD | {"previous": {"0": ""}}, 'previous["0"]: got 0 char', id="owner empty"),
    pytest.param(GOOD | {"strategy": "best"}, 'strategy: got "best", expected one of sticky',
                 id="unknown strategy"),
    pytest.param(GOOD | {"strategy": []}, "strategy: got []", id="strategy no text"),
])  # fmt: skip
def test_wrong_input_is_named(data, sentence):
    result = run(data)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""
    assert len(result.stderr) < 300


def test_bench_names_every_strategy():
    lines = run("", "--bench").stdout.splitlines()
    assert "100,000 partitions over 10,000 members" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == list(ASSIGNORS)


def test_bench_as_json():
    result = json.loads(run("", "--bench", "--json").stdout)
    assert (result["partitions"], result["members"]) == (100_000, 10_000)
    assert set(result["seconds"]) == set(ASSIGNORS)
    assert all(seconds > 0 for seconds in result["seconds"].values())
