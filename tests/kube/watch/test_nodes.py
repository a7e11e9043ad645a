"""Which pods a node is about to shed."""

import pytest

from partq.kube.watch.nodes import node, tolerations

EXECUTE = {"key": "k", "value": "v", "effect": "NoExecute"}
LASTING = {"key": "k", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("spec", "borne", "sheds"),
    [
        pytest.param({}, [], False, id="a node as any other"),
        pytest.param({"unschedulable": True}, [], True, id="cordoned"),
        pytest.param({"unschedulable": True}, [LASTING], True, id="cordoned, whatever it bears"),
        pytest.param({"taints": [EXECUTE]}, [], True, id="a taint that evicts"),
        pytest.param(
            {"taints": [{**EXECUTE, "effect": "NoSchedule"}]}, [], False, id="one that does not"
        ),
        pytest.param({"taints": [EXECUTE]}, [LASTING], False, id="borne"),
        pytest.param(
            {"taints": [EXECUTE]}, [{"operator": "Exists"}], False, id="everything is borne"
        ),
        pytest.param({"taints": [EXECUTE]}, [EXECUTE], False, id="borne with its value"),
        pytest.param(
            {"taints": [EXECUTE]}, [{**EXECUTE, "value": "x"}], True, id="another value is borne"
        ),
        pytest.param(
            {"taints": [EXECUTE]}, [{**LASTING, "key": "x"}], True, id="another key is borne"
        ),
        pytest.param(
            {"taints": [EXECUTE]},
            [{**LASTING, "tolerationSeconds": 300}],
            True,
            id="borne for a while",
        ),
        pytest.param(
            {"taints": [EXECUTE]},
            [{**LASTING, "effect": "NoSchedule"}],
            True,
            id="borne when it is scheduled",
        ),
        pytest.param(
            {"taints": [EXECUTE, {**EXECUTE, "key": "x"}]}, [LASTING], True, id="one of two"
        ),
    ],
)
def test_sheds(spec, borne, sheds):
    pod = {"spec": {"tolerations": borne}}
    assert node({"spec": spec}).sheds(tolerations(pod)) is sheds


def test_what_says_nothing():
    assert not node({}).sheds(tolerations({}))
