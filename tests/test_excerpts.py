from partq.excerpts import counted, excerpt, represented, some_of


def test_a_long_text_is_cut():
    assert excerpt("a" * 80) == "a" * 80
    assert excerpt("a" * 81) == "a" * 80 + "..."
    assert excerpt("abcd", 3) == "abc..."
    assert excerpt(12) == "12"


def test_an_object_without_a_repr_is_shown_by_its_type():
    class Broken:
        def __repr__(self):
            raise ZeroDivisionError

    assert represented({"a": 1}) == "{'a': 1}"
    assert represented("abcd", 3) == "'ab..."
    assert represented(Broken()) == "<Broken without a repr>"


def test_some_of_many_names():
    assert some_of([]) == "none"
    assert some_of({"b", "a"}) == "a, b"
    assert some_of([str(each) for each in range(12)], 3) == "0, 1, 10 and 9 more"
    assert some_of(["x" * 100]) == "x" * 80 + "..."


def test_a_count_agrees_with_its_noun():
    assert counted(1, "message") == "1 message"
    assert counted(0, "message") == "0 messages"
    assert counted(1204, "message", spec=",") == "1,204 messages"
    assert counted(1, "letter is", "letters are") == "1 letter is"
    assert counted(2, "letter is", "letters are") == "2 letters are"
