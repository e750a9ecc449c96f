"""The committed dashboards are what the code generates, and Grafana's schema knows all that is in them."""

from __future__ import annotations

import json
import re
import types
import typing
from enum import Enum
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard

from grafana.dashboards import FOLDER, texts
from tests.grafana.written import GRAFANA, SHOWN, panels, targets

PRESENT = {"timeseries", "stat", "table", "bargauge", "heatmap", "state-timeline"}
"""Kinds of panels that Grafana has not deprecated."""
CHOSEN = 'cluster="$cluster", namespace="$namespace", job="$job", instance=~"$instance"'
"""What makes a selector one of the chosen scheduler."""

per_board = pytest.mark.parametrize("name", SHOWN)


def test_the_files_are_what_the_code_generates() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == {
        path.name: text for path, text in texts()
    }, "run: python -m grafana.dashboards"


# --- the schema -------------------------------------------------------------------------------------------------------


def misfits(value: object, wanted: Any, where: str) -> list[str]:
    """Where a model of Grafana's schema holds what its fields do not allow."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted in (Any, object):
        return []
    if origin in (typing.Union, types.UnionType):
        tried = [misfits(value, each, where) for each in inner]
        deeper = [found for found in tried if found and not found[0].startswith(f"{where}: ")]
        return (deeper or tried)[0] if all(tried) else []
    if origin is typing.Literal:
        return [] if value in inner else [f"{where}: {value!r} is none of {inner}"]
    if origin is list and isinstance(value, list):
        return [text for place, each in enumerate(value) for text in misfits(each, inner[0], f"{where}[{place}]")]
    if origin is dict and isinstance(value, dict):
        return [text for key, each in value.items() for text in misfits(each, inner[1], f"{where}.{key}")]
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return [] if value in [each.value for each in wanted] else [f"{where}: {value!r} is no {wanted}"]
    if isinstance(value, dict) and hasattr(wanted, "from_json"):  # the models leave some objects in lists as they are
        model = wanted.from_json(value)
        lost = value.keys() - model.to_json().keys()
        return [f"{where}: {sorted(lost)} unknown"] if lost else misfits(model, wanted, where)
    kind = (int, float) if wanted is float else origin or wanted
    if not isinstance(value, kind) or (isinstance(value, bool) and wanted in (int, float)):
        return [f"{where}: {value!r} is no {wanted}"]
    fields = typing.get_type_hints(type(value)) if type(value).__module__.startswith("grafana_foundation_sdk") else {}
    fields = {name: kind for name, kind in fields.items() if name in vars(value)}
    return [text for name, kind in fields.items() for text in misfits(getattr(value, name), kind, f"{where}.{name}")]


def read(shown: dict[str, Any]) -> dashboard.Dashboard:
    """A dashboard through the models that are generated from Grafana's schema."""
    register_default_plugins()
    return dashboard.Dashboard.from_json(shown)


@per_board
def test_the_schema_knows_every_field(name: str) -> None:
    again = json.loads(json.dumps(read(SHOWN[name]), cls=JSONEncoder))
    assert again == SHOWN[name]  # what the models do not know does not come back


@per_board
def test_every_value_is_of_the_schemas_type(name: str) -> None:
    assert misfits(read(SHOWN[name]), dashboard.Dashboard, name) == []


def test_what_the_schema_does_not_allow_is_found() -> None:
    shown = json.loads(json.dumps(SHOWN["vcd-queues.json"]))
    shown["panels"][1]["gridPos"]["w"] = "wide"
    assert misfits(read(shown), dashboard.Dashboard, "it") == ["it.panels[1].grid_pos.w: 'wide' is no <class 'int'>"]
    shown["panels"][1]["colour"] = "red"
    assert json.loads(json.dumps(read(shown), cls=JSONEncoder)) != shown


# --- what a reader needs ----------------------------------------------------------------------------------------------


def test_no_two_dashboards_share_a_name() -> None:
    for key in ("uid", "title"):
        assert len({board[key] for board in SHOWN.values()}) == len(SHOWN)
    assert [board["uid"] for board in SHOWN.values()] == [Path(name).stem for name in SHOWN]


@per_board
def test_ids_of_panels_are_unique(name: str) -> None:
    ids = [panel["id"] for panel in SHOWN[name]["panels"]]
    assert sorted(ids) == list(range(1, len(ids) + 1))


@per_board
def test_panels_lie_beside_each_other(name: str) -> None:
    places = [panel["gridPos"] for panel in SHOWN[name]["panels"]]
    for place in places:
        assert place.get("x", 0) + place["w"] <= 24
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@per_board
def test_panels_say_what_they_show_in_which_unit(name: str) -> None:
    for panel in panels(SHOWN[name]):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["type"] in PRESENT
        assert panel["gridPos"]["w"] >= 4


@per_board
def test_data_source_scheduler_and_queue_can_be_chosen(name: str) -> None:
    board = SHOWN[name]
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert list(variables)[:5] == ["datasource", "cluster", "namespace", "job", "instance"]
    for label in ("cluster", "namespace", "job"):  # one of them: Grafana takes the first that there is
        assert (variables[label]["multi"], variables[label]["includeAll"]) == (False, False)
        assert "current" not in variables[label]
    assert (variables["instance"]["multi"], variables["instance"]["includeAll"]) == (True, True)
    expressions = [target["expr"] for panel in panels(board) for target in panel["targets"]]
    used = {word for expr in expressions for word in re.findall(r"\$(?!__)(\w+)", expr)}
    assert used == variables.keys() - {"datasource", "page", "runbooks"}
    for name in ("page", "runbooks"):  # of several clusters' pages that of the scheduler that is shown
        assert f"vcd_page_info{{{CHOSEN}}}" in variables[name]["query"]["query"]
    assert [link["url"] for link in board["links"] if link["type"] == "link"] == ["${page}/?at=${__to}"]
    for panel in panels(board):
        for place in (panel, *panel["targets"]):
            assert place["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_a_job_and_a_session_lead_to_the_page() -> None:
    led = {
        panel["title"]: link["url"]
        for board in SHOWN.values()
        for panel in panels(board)
        for link in panel["fieldConfig"]["defaults"].get("links", [])
    }
    fields = "&job=${__data.fields.namespace}/${__data.fields.job}"
    assert led == {"Longest": "${page}/?at=${__to}" + fields, "Last session": "${page}/?session=${__value.raw}"}
    (longest,) = [panel for panel in panels(SHOWN["vcd-waiting.json"]) if panel["title"] == "Longest"]
    columns = longest["transformations"][1]["options"]["renameByName"]
    assert {"namespace", "job"} <= set(columns.values())


def test_nothing_is_summed_that_volcanos_controllers_show_too() -> None:
    asked = [target["expr"] for board in SHOWN.values() for panel in panels(board) for target in panel["targets"]]
    assert [expr for expr in asked if "volcano_queue_pod_group_" in expr] == []


def of_others(expr: str) -> list[str]:
    """The series that an expression asks for whatever scheduler they are of."""
    own = re.escape(f"{{{CHOSEN}")
    return re.findall(rf"\b(?:vcd|volcano|process)_\w+\b(?!{own}[,}}])", expr)


def test_every_series_of_an_expression_is_of_the_chosen_scheduler() -> None:
    assert [asked for asked in targets() if of_others(asked.expr)] == []


@per_board
def test_choices_are_of_the_chosen_scheduler(name: str) -> None:
    asked = [variable["query"]["query"] for variable in SHOWN[name]["templating"]["list"][1:]]
    chosen = CHOSEN.split(", ")
    for place, query in enumerate(asked[:4]):
        assert f"vcd_build_info{{{', '.join(chosen[:place])}}}" in query
    assert [query for query in asked[4:] if of_others(query)] == []


def test_a_series_of_any_scheduler_is_found() -> None:
    assert of_others('sum(vcd_leader{instance=~"$instance"})') == ["vcd_leader"]
    assert of_others(f"vcd_leader{{{CHOSEN}}} / on () vcd_epoch") == ["vcd_epoch"]


def test_provisioning_is_for_grafana() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/vcd.yaml").read_text())["providers"]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert (provider["type"], source["type"]) == ("file", "prometheus")
    told = (GRAFANA / "README.md").read_text()
    for place in (provider["options"]["path"], source["url"]):
        assert f"-e {place.removeprefix('$')}=" in told
