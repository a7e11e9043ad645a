from partq.excerpts import counted, excerpt, some_of


def test_a_long_text_is_cut():
    assert excerpt("a" * 80) == "a" * 80
    assert excerpt("a" * 81) == "a" * 80 + "..."
    assert excerpt("abcd", 3) == "abc..."
    assert excerpt(12) == "12"


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
