"""The Helm chart's files, read: versions, custom resources, its README, and the schema that judges values."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.test_manifests import BASE, CRDS, DEPLOY, INSTALLED, REPLACE, SHADOW, STANDALONE, one, pod_of, render
from vcd.daemon.options import OptionError, parse_options
from vcd.model.version import __version__

CHART = DEPLOY / "chart" / "vcd"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))


def generator() -> Any:
    """The module that writes the chart's README."""
    spec = importlib.util.spec_from_file_location("chart_readme", DEPLOY / "chart" / "readme.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(values: dict[str, Any]) -> list[str]:
    """What the schema says against values that are put over the defaults."""
    found = jsonschema.Draft7Validator(SCHEMA).iter_errors(over(VALUES, values))
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in found]


def over(base: Any, values: Any) -> Any:
    """Values over others as Helm puts them: mappings by key, all else replaced, null removes."""
    if not isinstance(base, dict) or not isinstance(values, dict):
        return copy.deepcopy(values)
    merged = {name: over(base.get(name), value) for name, value in values.items() if value is not None}
    return {**{name: value for name, value in base.items() if name not in values}, **merged}


def schemas_of_objects(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """The schemas of all mappings that name their keys, by path."""
    found = {path: schema} if "properties" in schema else {}
    for name, each in schema.get("properties", {}).items():
        found |= schemas_of_objects(each, f"{path}.{name}")
    return found


def test_its_version_is_the_projects() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["apiVersion"], chart["version"], chart["appVersion"]) == ("v2", __version__, __version__)


def test_the_image_of_the_base_is_of_that_version() -> None:
    (container,) = pod_of(render(BASE))["spec"]["containers"]
    assert container["image"] == f"vcd:{__version__}"


def test_what_it_depends_on_is_of_the_version_that_it_names() -> None:
    (dependency,) = yaml.safe_load((CHART / "Chart.yaml").read_text())["dependencies"]
    inner = yaml.safe_load((CHART / "charts" / dependency["name"] / "Chart.yaml").read_text())
    assert (inner["name"], inner["version"]) == (dependency["name"], dependency["version"])


def test_its_description_is_the_projects() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["description"] == project["description"]


def test_its_custom_resources_are_the_packages() -> None:
    shipped = {path.name: path.read_text() for path in (CHART / "charts" / "crds" / "crds").iterdir()}
    assert shipped == {name: (CRDS / name).read_text() for name in INSTALLED}, "make chart"


def test_its_admission_policies_are_the_components() -> None:
    policies = (DEPLOY / "components" / "validation" / "policies.yaml").read_text()
    assert (CHART / "files" / "validation.yaml").read_text() == policies, "make chart"
    assert policies.count("['volcano']") == 1  # what the chart puts its scheduler's name in the place of


def test_the_readme_has_the_table_of_the_values() -> None:
    readme = (CHART / "README.md").read_text()
    assert generator().with_table(readme, (CHART / "values.yaml").read_text()) == readme, "make chart"


def test_every_upgrade_that_is_told_of_keeps_earlier_values() -> None:
    """Helm forgets them otherwise, the image's included."""
    told = {path: upgrades_in(path) for path in (*DEPLOY.rglob("*"), *(DEPLOY.parent / "docs").glob("*.md"))}
    assert {path.name for path, commands in told.items() if commands} >= {"page-behind-ingress.yaml", "upgrading.md"}
    assert [each for commands in told.values() for each in commands if "--reset-then-reuse-values" not in each] == []


def upgrades_in(path: Path) -> list[str]:
    """The commands with options in a text that upgrade the chart here, each as one line."""
    if path.suffix not in {".md", ".yaml", ".txt"}:
        return []
    text = re.sub(r"\\\n[# ]*", " ", path.read_text())
    return [each for each in re.findall(r"helm upgrade[^`\n]*", text) if " -" in each and " volcano-sh/" not in each]


def test_every_value_is_documented() -> None:
    module = generator()
    known = {value.path for value in module.documented((CHART / "values.yaml").read_text())}
    assert len(known) > 50
    assert list(module.undocumented(VALUES, known)) == []


def test_a_value_without_a_comment_is_found() -> None:
    module = generator()
    text = "a:\n  # Told.\n  b: 1\n  c: 2\n"
    assert list(module.undocumented(yaml.safe_load(text), {value.path for value in module.documented(text)})) == ["a.c"]


def test_its_configuration_is_the_bases() -> None:
    assert VALUES["scheduler"]["configuration"] == one(render(BASE), "ConfigMap")["data"]["volcano-scheduler.conf"]


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_the_schema_knows_just_the_values_that_there_are() -> None:
    optional = {"global"}
    for path, schema in schemas_of_objects(SCHEMA).items():
        assert schema["additionalProperties"] is False, path
        values = VALUES
        for name in path.split(".")[1:]:
            values = values.get(name, {})
        assert set(values) <= set(schema["properties"]), path
        if path == "":
            assert set(schema["properties"]) - set(values) == optional


def test_the_schema_takes_the_defaults() -> None:
    assert refused({}) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_takes_the_examples(path: Path) -> None:
    values = yaml.safe_load(path.read_text())
    assert values
    assert refused(values) == []


def test_there_is_an_example_for_each_overlay_and_for_the_page() -> None:
    assert {path.stem for path in EXAMPLES} == {REPLACE.name, SHADOW.name, STANDALONE.name, "page-behind-ingress"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"replica": 3}, ": Additional properties are not allowed ('replica' was unexpected)"),
        ({"leaderElection": {"enable": True}}, "leaderElection: Additional properties"),
        ({"eventLog": {"storage": {"sizeLimit": "1Gi"}}}, "eventLog.storage: Additional properties"),
        ({"replicas": "2"}, "replicas: '2' is not of type 'integer'"),
        ({"leaderElection": {"enabled": "yes"}}, "leaderElection.enabled: 'yes' is not of type 'boolean'"),
        ({"eventLog": {"storage": {"type": "pvc"}}}, "eventLog.storage.type: 'pvc' is not one of ['emptyDir', 'eph"),
        ({"eventLog": {"storage": {"size": "20 GB"}}}, "eventLog.storage.size: '20 GB' does not match"),
        ({"eventLog": {"storage": {"accessModes": ["ReadWriteMany"]}}}, "eventLog.storage.accessModes.0: 'ReadWriteM"),
        ({"eventLog": {"retention": {"age": "a week"}}}, "eventLog.retention.age: 'a week' does not match"),
        ({"eventLog": {"archive": {"to": "gs://logs"}}}, "eventLog.archive.to: 'gs://logs' does not match"),
        ({"image": {"digest": "sha256:12"}}, "image.digest: 'sha256:12' does not match"),
        ({"image": {"pullSecrets": ["mine"]}}, "image.pullSecrets.0: 'mine' is not of type 'object'"),
        ({"scheduler": {"extraArgs": ["seed=1"]}}, "scheduler.extraArgs.0: 'seed=1' does not match"),
        ({"scheduler": {"existingConfigMap": "Mine"}}, "scheduler.existingConfigMap: 'Mine' does not match"),
        ({"metrics": {"service": {"port": 70000}}}, "metrics.service.port: 70000 is greater than"),
        ({"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}}, "networkPolicy.apiServerCIDRs.0: '10.0.0.1' does not"),
        ({"rbac": {"extraRoles": [{"name": "more"}]}}, "rbac.extraRoles.0: 'rules' is a required property"),
        ({"podLabels": {"a": 1}}, "podLabels.a: 1 is not of type 'string'"),
        ({"image": None}, ": 'image' is a required property"),
        ({"strategy": {"type": "Rolling"}}, "strategy.type: 'Rolling' is not one of"),
        ({"fullnameOverride": "1"}, "fullnameOverride: '1' does not match"),  # no Service's name
        ({"fullnameOverride": "night.shift"}, "fullnameOverride: 'night.shift' does not match"),
        (
            {"metrics": {"serviceMonitor": {"interval": "0s"}}},
            "metrics.serviceMonitor.interval: '0s' should not be valid",
        ),
    ],
    ids=str,
)
def test_the_schema_refuses(values: dict[str, Any], expected: str) -> None:
    found = refused(values)
    assert len(found) == 1
    assert found[0].startswith(expected)


ARCHIVE = {"to": "s3://logs/prod"}


@pytest.mark.parametrize(
    ("values", "flag", "texts"),
    [
        (
            lambda text: {"page": {"url": text}},
            "page-url",
            "https://vcd.example.com|http://[::1]:8090/vcd/|https://a b|https://a/?x=1|https://|ftp://a",
        ),
        (
            lambda text: {"page": {"hosts": [text]}},
            "page-host",
            "vcd.example.com|VCD|10.0.0.7|2001:db8::1|::1|a:b|vcd.example.com:443|..|a..b|-a",
        ),
        (lambda text: {"scheduler": {"schedulePeriod": text}}, "schedule-period", "1s|500ms|1m30s|0s|0h0.0ms|10"),
        (
            lambda text: {"eventLog": {"archive": {"to": text}}},
            "archive",
            "s3://logs|s3://my.logs/a b #c|/mnt/log: 1|s3://ab|s3://a../b|s3://LOGS/a|gs://logs",
        ),
        (
            lambda text: {"eventLog": {"archive": {**ARCHIVE, "every": text}}},
            "archive-every",
            "90s|1.5h|0s|0m0s|5",
        ),
        (
            lambda text: {"eventLog": {"archive": {**ARCHIVE, "keep": text}}},
            "archive-keep",
            "0|30d|1h30m|0.5Gi|90d,500Gi|500Gi,12w|90|days|.|1.5d|30d,90d|1Gi,2Gi|0,1Gi",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "|" not in value else "",
)
def test_the_schema_takes_what_vcd_takes(values: Callable[[str], dict[str, Any]], flag: str, texts: str) -> None:
    def taken(text: str) -> bool:
        try:
            parse_options({flag: [text]})
        except OptionError:
            return False
        return True

    every = texts.split("|")
    assert {text: refused(values(text)) == [] for text in every} == {text: taken(text) for text in every}
