"""The name of a partition has one spelling."""

import pytest

from partq.core.model import PartitionId


@pytest.mark.parametrize("name", ["1.0", "1.3", "12.4095", "999999999.999999999"])
def test_a_name_that_is_read_is_written_in_the_same_way(name):
    assert str(PartitionId.parse(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("1.00", id="zeros before the index"),
        pytest.param("01.0", id="zeros before the generation"),
        pytest.param("1.\u0660", id="a zero that is not ASCII"),
        pytest.param("\u0661.0", id="a one that is not ASCII"),
        pytest.param("+1.0", id="a sign"),
        pytest.param("1.-0", id="a sign of the index"),
        pytest.param("1_0.0", id="an underscore"),
        pytest.param(" 1.0", id="a space"),
        pytest.param("1.0\n", id="the end of a line"),
        pytest.param("1.0.0", id="three numbers"),
        pytest.param("1", id="no generation"),
        pytest.param("1.", id="no index"),
        pytest.param("", id="nothing"),
        pytest.param("1.1000000000", id="more digits than a number of a partition has"),
        pytest.param("1." + "9" * 5000, id="more digits than Python reads"),
    ],
)
def test_any_other_spelling_is_refused(name):
    """A call would look a key up as it is written, and not find what it means."""
    with pytest.raises(ValueError, match=r"expected GENERATION\.INDEX, such as 1\.3") as refused:
        PartitionId.parse(name)
    assert "set_int_max_str_digits" not in str(refused.value)
    assert len(str(refused.value)) < 200
