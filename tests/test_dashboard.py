"""The chart's dashboard shows what people are to be told of, and nothing that is not there."""

import json
import re
from pathlib import Path

from partq.metrics import BrokerMetrics
from partq.operator_metrics import OperatorMetrics

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "charts" / "partq" / "files" / "dashboard.json"
PAGE = ROOT / "docs" / "kubernetes.md"


def shown():
    """Return the metrics of the dashboard's panels, as the page names them."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    text = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    return {name.removesuffix("_total") for name in re.findall(r"\bpartq_\w+", text)}


def to_be_told():
    """Return what the page asks to alert on, and what is 1 while something is wrong."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    cells = [row.split(" | ") for row in rows]
    return {
        name
        for names, *_, told in cells
        if re.search(r"\balert\b|\b1 while\b", told)
        for name in re.findall(r"`(partq_\w+)`", names)
    }


def test_it_shows_what_to_alert_on():
    assert {"partq_messages_missing", "partq_dead_letters_parked"} <= to_be_told()
    assert to_be_told() - shown() == set()


def test_it_shows_metrics_that_there_are():
    registries = [BrokerMetrics("orders", "shop").registry, OperatorMetrics().registry]
    assert shown() - {metric.name for each in registries for metric in each.collect()} == set()


def test_its_panels_do_not_cover_each_other():
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places) == len({each["id"] for each in panels})
    assert {x for x, _ in places} == {0, 12}
