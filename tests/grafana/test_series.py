"""Every series that dashboards and rules ask for exists, with the labels they ask by; every alert has its runbook."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from tests.grafana.written import ALERTS, MONITOR, RECORDED, RULES, SHOWN, TARGET, names, panels, rules, targets
from vcd.daemon.metrics.metrics_collector import Metrics

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRAPED = {"cluster", "namespace", "job", "instance"}
"""Labels that Prometheus adds, which tell schedulers and replicas apart."""
ASKED = [each for each in (*targets(), *rules()) if each.expr != "vector(1)"]  # the place of the runbooks


@cache
def labels_of() -> dict[str, set[str]]:
    """The labels of each series, by name: declared, given by a session of all plugins, or the process's."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    found: dict[str, set[str]] = {name: set(labels) for name, (labels, _) in generator.given().items()}
    for family in generator.declared_families():
        if family.kind == "histogram":
            found |= {f"{family.name}_{end}": {*family.labels, "le"} for end in ("bucket", "sum", "count")}
        else:
            found[family.name] = set(family.labels)
    process = re.findall(r"^(process_\w+) ", Metrics().freeze()().decode(), re.MULTILINE)
    return found | {name: set() for name in process}


def test_their_series_exist() -> None:
    known = labels_of().keys() | RECORDED
    assert [asked.where for asked in ASKED if not names(asked.expr)] == []
    unknown = {asked.where: names(asked.expr) - known for asked in ASKED}
    assert {where: series for where, series in unknown.items() if series} == {}


def test_their_labels_exist() -> None:
    unknown = []
    for asked in ASKED:
        for name, matchers in re.findall(r"([a-z]\w+)\{([^{}]*)\}", asked.expr):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers)))
            unknown += [(asked.where, name, label) for label in labels - SCRAPED - labels_of().get(name, labels)]
    assert unknown == []


def test_a_series_that_nobody_gives_is_found() -> None:
    made_up = 'sum by (queue) (rate(vcd_made_up_total{instance=~"$instance", of="vcd_leader"}[5m])) > 1'
    assert names(made_up) == {"vcd_made_up_total"}


def test_variables_have_values_of_series_that_exist() -> None:
    for board in SHOWN.values():
        for variable in board["templating"]["list"][1:]:
            if variable["name"] == "runbooks":  # an address that a rule, or the page, gives
                continue
            match = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
            assert match is not None
            name, label = match.groups()
            assert label in labels_of()[name] | SCRAPED


def test_the_service_monitor_leaves_vcd_its_own_labels() -> None:
    """The operator's labels take the place of those of the same name, which become ``exported_...``."""
    (endpoint,) = MONITOR["spec"]["endpoints"]
    given_back = {each["targetLabel"] for each in endpoint["metricRelabelings"] if "targetLabel" in each}
    assert given_back == {*TARGET, "node", "instance"} & set().union(*labels_of().values())
    assert not given_back & SCRAPED  # rules and dashboards tell schedulers apart by the target's


def test_each_recorded_series_is_used_and_recorded_once() -> None:
    recorded = [rule["record"] for rule in RULES if "record" in rule]
    assert len(set(recorded)) == len(recorded)
    used = {name for asked in rules() for name in names(asked.expr)}
    links = "".join(text for rule in ALERTS for text in rule["annotations"].values())
    assert {name for name in recorded if name not in used and name not in links} == set()


# --- runbooks ---------------------------------------------------------------------------------------------------------


@cache
def runbooks() -> dict[str, tuple[str, str]]:
    """The page and the text of each runbook, by its anchor."""
    found = {}
    for path in (DOCS / "runbooks").glob("*.md"):
        parts = re.split(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        for title, text in zip(parts[::2], parts[1::2], strict=True):
            found[title.lower().replace(" ", "-")] = (f"docs/runbooks/{path.name}", text)
    return found


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    urls = [rule["annotations"]["runbook_url"] for rule in ALERTS]
    pages = {anchor: page for anchor, (page, _) in runbooks().items()}
    templates = {url.rpartition("#")[0].replace(pages[url.rpartition("#")[2]], "PAGE") for url in urls}
    assert len(templates) == 1  # tests/external/test_rules.py renders it
    assert {url.rpartition("#")[2] for url in urls} == pages.keys()
    served = (DOCS.parent / "vcd" / "view" / "static" / "runbooks.html").read_text(encoding="utf-8")
    assert set(re.findall(r'<h2 id="([^"]+)"', served)) == pages.keys()


def test_what_is_called_worth_an_alert_has_one() -> None:
    _, _, told = (DOCS / "operations" / "monitoring.md").read_text(encoding="utf-8").partition("\nWorth an alert:\n")
    worth = re.findall(r"^\| `([^`]+)`", told.partition("\n## ")[0], re.MULTILINE)
    recorded = {rule["record"]: names(rule["expr"]) for rule in RULES if "record" in rule}
    asked = [names(rule["expr"]) for rule in ALERTS]
    asked = [found.union(*(recorded.get(name, ()) for name in found)) for found in asked]
    assert len(worth) > 10
    assert [expr for expr in worth if not any(names(expr) <= found for found in asked)] == []


def test_several_clusters_are_kept_apart() -> None:
    """What is summed keeps the labels that tell a scheduler from another one in the same Prometheus."""
    kept = [
        (rule.get("alert") or rule["record"], labels)
        for rule in RULES
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
    ]
    assert [(name, labels) for name, labels in kept if not labels.startswith("cluster, namespace, job")] == []


def test_every_alert_leads_to_the_page_as_of_then() -> None:
    assert {rule["annotations"]["page_url"].count("/?at=") for rule in ALERTS} == {1}


def test_a_runbook_says_what_it_means_how_to_look_and_what_to_do() -> None:
    for anchor, (_, text) in runbooks().items():
        assert [word for word in ("**Means**", "**Look**", "**Do**") if word not in text] == [], anchor
        assert re.search(r"^(vcd|kubectl) ", text, re.MULTILINE), anchor


def test_links_of_panels_lead_to_runbooks() -> None:
    links = [link["url"] for board in SHOWN.values() for panel in panels(board) for link in panel.get("links", [])]
    assert len(links) > 10
    assert {link.removeprefix("${runbooks}#") for link in links} - runbooks().keys() == set()


def test_an_alert_says_how_bad_it_is_and_what_is_wrong() -> None:
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]
        assert re.search(r"\s(<|>)\s", rule["expr"]), rule["alert"]
