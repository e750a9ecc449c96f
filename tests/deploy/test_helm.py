"""What helm makes of the chart: what kustomize makes of deploy/base, valid for Kubernetes, in one namespace."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy.kustomize import Key, Manifest, documents, key, render
from tests.deploy.programs import go_tool, options_in
from tests.deploy.rbac import Grant, allows, grants, rule_grants
from tests.deploy.schema import problems
from tests.deploy.test_chart import CHART, VALUES
from tests.deploy.test_manifests import (
    BASE,
    CRDS,
    NAMESPACE,
    REPLACE,
    REVIEWS,
    SCHEMAS,
    SHADOW,
    STANDALONE,
    VOLUME_SIZE,
    let_through,
    one,
    overlay_of,
)
from tests.waiting import WAIT_LIMIT
from vcd.daemon.options import FLAGS, normalise_arguments
from vcd.model.version import __version__
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.permissions import roles_for

pytestmark = pytest.mark.external

Template = Callable[..., dict[Key, Manifest]]

OLDEST, NEWEST = "1.25.0", "1.37.0"
"""Of Kubernetes: what the chart asks for, and what helm and the schemas here know last."""

INGRESS = CHART.parents[2] / "examples" / "ingress"
CERTIFICATES = INGRESS / "certificate.yaml"
NETWORK = {"networkPolicy": {"enabled": True}}
PAGE = {"page": {"enabled": True}}
MONITOR = {"metrics": {"serviceMonitor": {"enabled": True}}}
SECRET = {"tls": {"secretName": "vcd-scheduler-tls"}}
ASKED: dict[str, Any] = {"metrics": {**MONITOR["metrics"], "secure": True, "requireToken": True}, **SECRET}
BEHIND = yaml.safe_load((CHART / "examples" / "page-behind-ingress.yaml").read_text())
APART = {"eventLog": {"shared": False}}
PERSISTENT = {"eventLog": {"storage": {"type": "persistent", "storageClassName": "local"}}}
KEPT = {"eventLog": {"storage": {"type": "persistent"}}}
EPHEMERAL = {"eventLog": {"storage": {"type": "ephemeral"}}}
REPLACING = yaml.safe_load((CHART / "examples" / "replace-vc-scheduler.yaml").read_text())
SHADOWING = yaml.safe_load((CHART / "examples" / "shadow.yaml").read_text())
ALONE = yaml.safe_load((CHART / "examples" / "standalone.yaml").read_text())
EVERYTHING = {
    "fullnameOverride": "night-shift",
    "image": {"digest": "sha256:" + "0f" * 32, "pullPolicy": "Always", "pullSecrets": [{"name": "mine"}]},
    "replicas": 3,
    "strategy": {"rollingUpdate": {"maxSurge": "50%"}},
    "scheduler": {
        "name": "night",
        "extraNames": ["day"],
        "defaultQueue": "evening",
        "schedulePeriod": "500ms",
        "kubeApiQPS": 2000000,
        "kubeApiBurst": 3000000,
        "verbosity": -1,
        "extraArgs": ["--node-selector=zone:a,zone:b", "--seed=7"],
    },
    "leaderElection": {"name": "night", "namespace": "leases"},
    "eventLog": {
        "storage": {"size": "30Gi"},
        "retention": {"age": "14d", "size": "15Gi"},
        "archive": {"to": "s3://logs/night", "every": "90s", "keep": "90d,500Gi"},
    },
    "page": {
        "enabled": True,
        "url": "https://night.example.com",
        "audiences": ["night", "day"],
        "hosts": ["night.example.com", "10.0.0.7"],
        "service": {"enabled": True, "port": 8443, "annotations": {"example.com/a": "b"}},
    },
    "tls": {"secretName": "night-tls"},
    "metrics": {
        "secure": True,
        "requireToken": True,
        "service": {"port": 9090},
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "interval": "1m",
            "tlsConfig": {"insecureSkipVerify": True},
        },
    },
    "podDisruptionBudget": {"minAvailable": "50%"},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "pageFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "apiServerCIDRs": ["192.0.2.7/32", "2001:db8::/64"],
        "apiServerPorts": [8443],
        "extraIngress": [{"ports": [{"port": 8091, "protocol": "TCP"}]}],
        "extraEgress": [{"ports": [{"port": 8091, "protocol": "TCP"}]}],
    },
    "serviceAccount": {"name": "night", "annotations": {"example.com/role": "night"}},
    "rbac": {
        "extraRoles": [{"name": "more", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}]
    },
    "defaultQueue": {"create": True, "spec": {"weight": 2, "capability": {"cpu": "10"}}},
    "resources": {"limits": {"cpu": 4}},
    "priorityClassName": "system-node-critical",
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "extraEnv": [{"name": "VCD_LOG_FORMAT", "value": "json"}],
    "extraVolumes": [{"name": "certificate", "secret": {"secretName": "page"}}],
    "extraVolumeMounts": [{"name": "certificate", "mountPath": "/certificate", "readOnly": True}],
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/team": "batch"},
    "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
}
MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "replace-vc-scheduler": REPLACING,
    "shadow": SHADOWING,
    "standalone": ALONE,
    "persistent": PERSISTENT,
    "ephemeral": EPHEMERAL,
    "metrics for token holders": ASKED,
    "page behind an ingress": {**BEHIND, **NETWORK},
    "page and networkpolicy, no metrics": {**PAGE, **NETWORK, "metrics": {"enabled": False}},
    "one replica": {"replicas": 1, "strategy": {"type": "Recreate"}, "leaderElection": {"enabled": False}},
    "nothing made for it": {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
        "podDisruptionBudget": {"enabled": False},
    },
    "everything": EVERYTHING,
    "everything, persistent": {**EVERYTHING, "eventLog": {"storage": PERSISTENT["eventLog"]["storage"]}},
}
CASES = pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)


@pytest.fixture(scope="module")
def helm() -> str:
    """The helm of `make external-tools`; a machine without one fails here."""
    return go_tool("helm")


@pytest.fixture
def run(helm: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs helm with a file of values, in which nothing of the user who runs the tests counts."""

    def run(*words: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        given = [] if words[0] == "package" else ["--values", str(file)]
        command = [helm, *words, *given]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT, env=environ)

    return run


@pytest.fixture
def template(run: Callable[..., subprocess.CompletedProcess[str]]) -> Template:
    """The objects that a release has with these values, by key; standard error must be empty."""

    def template(
        values: dict[str, Any] | None = None,
        *words: str,
        namespace: str = NAMESPACE,
        release: str = "vcd",
        version: str = NEWEST,
        chart: Path = CHART,
    ) -> dict[Key, Manifest]:
        where = ["--namespace", namespace, "--kube-version", version]
        done = run("template", release, str(chart), *where, *words, values=values)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        found = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
        assert len({key(each) for each in found}) == len(found)
        return {key(each): each for each in found}

    return template


def comparable(value: Any) -> Any:
    """A manifest without what Helm adds, named things in order of their names.

    Only one thing is added: labels that tell the release. They are in selectors, too, since two releases in a namespace
    must not select each other's pods.
    """
    added = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items() if name not in added}
    if isinstance(value, list):
        items = [comparable(item) for item in value]
        return sorted(items, key=lambda item: item["name"]) if named(items) else items
    return value


def named(items: list[Any]) -> bool:
    return all(isinstance(item, dict) and "name" in item for item in items)


def assert_same(chart: dict[Key, Manifest], kustomize: dict[Key, Manifest], lacks: set[Key]) -> None:
    """The chart makes what kustomize makes, object by object, but for the objects in `lacks`."""
    assert set(kustomize) - set(chart) == lacks
    assert set(chart) - set(kustomize) == set()
    for where, manifest in chart.items():
        assert comparable(manifest) == comparable(kustomize[where]), where


# Helm makes it by --create-namespace, and a release must not own where its own record is.
OWN_NAMESPACE = {("Namespace", "", NAMESPACE)}


def test_the_defaults_are_the_base_with_one_log(template: Template, tmp_path: Path) -> None:
    assert_same(template(), render(overlay_of(tmp_path, "one-log")), lacks=set())


def test_with_a_log_of_each_replica_they_are_the_base(template: Template) -> None:
    assert_same(template(APART), render(BASE), lacks=set())


def test_in_vc_schedulers_place_it_is_the_overlay(template: Template) -> None:
    assert_same(template(REPLACING), render(REPLACE), lacks=set())


def test_as_a_shadow_it_is_the_overlay(template: Template) -> None:
    assert_same(template(SHADOWING), render(SHADOW), lacks=set())


def test_without_volcano_it_is_the_overlay(template: Template) -> None:
    assert_same(template(ALONE, "--include-crds"), render(STANDALONE), lacks=OWN_NAMESPACE)


@pytest.mark.parametrize(
    ("values", "components"),
    [
        (EPHEMERAL, ["one-log", "log-on-claims"]),
        (KEPT, ["one-log", "statefulset"]),
        ({**KEPT, "eventLog": {**KEPT["eventLog"], **APART["eventLog"]}}, ["statefulset"]),
        (PAGE, ["one-log", "page-for-token-holders"]),
        ({**PAGE, **NETWORK}, ["page-for-token-holders", "network-policy", "one-log"]),
        (ASKED, ["one-log", "metrics-for-token-holders"]),
    ],
    ids=[
        "log-on-claims",
        "statefulset",
        "statefulset with a log of each",
        "page-for-token-holders",
        "network-policy",
        "metrics-for-token-holders",
    ],
)
def test_a_value_does_what_a_component_does(
    template: Template, values: dict[str, Any], components: list[str], tmp_path: Path
) -> None:
    assert_same(
        template({**MONITOR, **values}), render(overlay_of(tmp_path, "servicemonitor", *components)), lacks=set()
    )


def test_a_difference_in_an_object_is_found(template: Template) -> None:
    found = template({**APART, "resources": {"limits": {"memory": "3Gi"}}})
    with pytest.raises(AssertionError, match="Deployment"):
        assert_same(found, render(BASE), lacks=set())


def invalid(manifests: dict[Key, Manifest], version: str) -> Iterator[str]:
    """What an API server of a version of Kubernetes would refuse, unknown fields included."""
    for where, manifest in manifests.items():
        kind = f"{manifest['apiVersion']} {manifest['kind']}"
        if kind == "monitoring.coreos.com/v1 ServiceMonitor":
            yield from (f"{where}{each}" for each in problems(manifest, SCHEMAS["kinds"][kind], SCHEMAS["definitions"]))
        elif manifest["kind"] == "Queue":
            yield from (f"{where}: {error.message}" for error in queue_schema().iter_errors(manifest))
        else:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{where}: {'.'.join(map(str, error.path))}: {error.message}"


def queue_schema() -> jsonschema.Draft7Validator:
    """The schema of Queues, with fields that it does not name refused."""
    (definition,) = list(yaml.safe_load_all((CRDS / "scheduling.volcano.sh_queues.yaml").read_text()))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["additionalProperties"] = False
    return jsonschema.Draft7Validator(schema)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@CASES
def test_every_object_is_valid(template: Template, values: dict[str, Any], version: str) -> None:
    if version == OLDEST:
        values = {**values, "validation": {"enabled": False}}  # which it does not have
    assert list(invalid(template(values, "--include-crds", version=version), version)) == []


@pytest.mark.parametrize("kind", ["Deployment", "Role", "ServiceMonitor", "Queue"])
def test_a_misspelled_field_would_be_found(template: Template, kind: str) -> None:
    found = template({**MONITOR, "defaultQueue": {"create": True}})
    misspelled = next(manifest for manifest in found.values() if manifest["kind"] == kind)
    misspelled.get("spec", misspelled)["ruless"] = []
    assert any("ruless" in problem for problem in invalid(found, NEWEST))


@CASES
def test_it_is_without_a_warning_of_lint(
    run: Callable[..., subprocess.CompletedProcess[str]], values: dict[str, Any]
) -> None:
    done = run("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr


@CASES
def test_a_release_is_in_its_namespace(template: Template, values: dict[str, Any]) -> None:
    found = template(values, namespace="batch")
    elsewhere = {where for where in found if where[1] not in {"", "batch"}}
    lease = values.get("leaderElection", {}).get("namespace", "batch")
    assert {namespace for _, namespace, _ in elsewhere} <= {lease, "kube-system"}
    assert {kind for kind, _, _ in elsewhere} <= {"Role", "RoleBinding"}
    subjects = [each for manifest in found.values() for each in manifest.get("subjects", [])]
    assert {each["namespace"] for each in subjects} <= {"batch"}


def test_names_that_look_like_numbers_stay_texts(template: Template) -> None:
    values = {
        "fullnameOverride": "true",
        "scheduler": {"existingConfigMap": "2", "defaultQueue": "3"},
        "serviceAccount": {"name": "4"},
        "page": {"enabled": True, "readerClusterRole": {"name": "5"}},
        "priorityClassName": "6",
        "leaderElection": {"namespace": "7"},
        "rbac": {"extraRoles": [{**EVERYTHING["rbac"]["extraRoles"][0], "name": "8", "namespace": "9"}]},
        "defaultQueue": {"create": True},
        **MONITOR,
        **NETWORK,
    }
    assert list(invalid(template(values, namespace="10"), NEWEST)) == []


@CASES
def test_two_releases_share_no_object(template: Template, values: dict[str, Any]) -> None:
    own = {name: value for name, value in values.items() if name not in {"fullnameOverride", "rbac", "defaultQueue"}}
    own["serviceAccount"] = {}
    found = [set(template(own, release=release)) for release in ("vcd", "night-vcd", "other")]
    assert not found[0] & found[1]
    assert not found[2] & (found[0] | found[1])


@CASES
def test_vcd_takes_its_command_line_and_may_take_the_lease(template: Template, values: dict[str, Any]) -> None:
    found = template(values, namespace="batch")
    options = options_in(found, "batch")
    election = VALUES["leaderElection"] | values.get("leaderElection", {})
    if options.shadow:
        assert not [one for one in found.values() if one["kind"] == "Role" and "leases" in str(one["rules"])]
        return
    assert options.leader_elect is election["enabled"]
    if not options.leader_elect or values.get("rbac") == {"create": False}:
        return
    assert (options.lease_namespace, options.lease_name) == (election["namespace"] or "batch", election["name"])
    account = values.get("serviceAccount", {}).get("name", "vcd-scheduler")
    granted = grants(found.values(), account, "batch")
    for verb, name in (("create", ""), ("get", options.lease_name), ("update", options.lease_name)):
        assert allows(granted, Grant(verb, "coordination.k8s.io", "leases", options.lease_namespace, name))


def test_what_is_given_reaches_vcd(template: Template) -> None:
    options = options_in(template(EVERYTHING), NAMESPACE)
    assert options.scheduler_names == ("night", "day")
    assert options.default_queue == "evening"
    assert options.node_selector == ("zone:a", "zone:b")
    assert (options.kube_api_qps, options.kube_api_burst) == (2000000, 3000000)
    assert (options.schedule_period, options.verbosity, options.seed) == (0.5, -1, 7)
    assert (options.retention_age, options.retention_size) == (14 * 24 * 3600 * 10**9, 15 * 2**30)
    assert (options.archive, options.archive_every) == ("s3://logs/night", 90)
    assert (options.archive_age, options.archive_size) == (90 * 24 * 3600 * 10**9, 500 * 2**30)
    assert (options.view_address, options.log_format) == (":8090", "json")
    assert (options.page_url, options.page_audiences) == ("https://night.example.com", ("night", "day"))
    assert options.page_hosts == ("night.example.com", "10.0.0.7")
    assert (options.metrics_secure, options.metrics_require_token) == (True, True)


def test_who_asks_from_outside_may_read_the_lease_where_it_is_and_reach_the_pods_where_they_are(
    template: Template,
) -> None:
    found = template({"leaderElection": {"namespace": "leases"}}, namespace="batch")
    rights = [
        {
            (grant.resource, grant.namespace)
            for grant in rule_grants(found["Role", where, "vcd-operator"]["rules"], where)
        }
        for where in ("leases", "batch")
    ]
    reached = {(each, "batch") for each in ("pods", "pods/portforward", "serviceaccounts/token")}
    assert rights == [{("leases", "leases")}, reached]


@pytest.mark.parametrize("place", ["/mnt/log: 1", "/mnt/a #b", "s3://logs/it's"])
def test_an_archives_place_stays_as_it_is_written(template: Template, place: str) -> None:
    assert options_in(template({"eventLog": {"archive": {"to": place}}}), NAMESPACE).archive == place


def test_a_null_takes_annotations_and_labels_out(template: Template) -> None:
    nulls = {"metrics": {"service": {"annotations": None}, "serviceMonitor": {"enabled": True, "labels": None}}}
    found = template({**nulls, "podAnnotations": None, "podLabels": None})
    assert "annotations" not in one(found, "Service")["metadata"]
    secure = {**nulls["metrics"], "secure": True}
    found = template({"metrics": secure, **SECRET})
    assert one(found, "Service")["metadata"]["annotations"] == {"prometheus.io/scrape": "false"}


@pytest.mark.parametrize("release", ["2nd-vcd", "my.vcd"])
def test_a_release_whose_services_could_have_no_name_is_refused(
    run: Callable[..., subprocess.CompletedProcess[str]], release: str
) -> None:
    done = run("template", release, str(CHART), "--kube-version", NEWEST)
    assert f"release {release}: no Service can be named {release}-scheduler; set fullnameOverride" in done.stderr
    done = run("template", release, str(CHART), "--kube-version", NEWEST, values={"fullnameOverride": "vcd"})
    assert done.returncode == 0, done.stderr


def test_what_is_given_reaches_the_pods(template: Template) -> None:
    pod = one(template(EVERYTHING), "Deployment")["spec"]["template"]
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    for field in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"):
        assert spec[field] == EVERYTHING[field], field
    assert pod["metadata"]["annotations"] == {"vcd.volcano.sh/reader": "vcd-reader", **EVERYTHING["podAnnotations"]}
    assert pod["metadata"]["labels"]["example.com/team"] == "batch"
    assert container["image"] == f"vcd@sha256:{'0f' * 32}"
    assert (container["imagePullPolicy"], spec["imagePullSecrets"]) == ("Always", [{"name": "mine"}])
    assert container["resources"]["limits"] == {"cpu": 4, "memory": "2Gi"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    options = options_in(template(EVERYTHING), NAMESPACE)
    assert volumes["tls"]["secret"] == {"secretName": "night-tls"}
    assert options.tls_cert_file == Path(mounts["tls"], "tls.crt")
    assert options.tls_private_key_file == Path(mounts["tls"], "tls.key")
    assert container["volumeMounts"][-1:] == EVERYTHING["extraVolumeMounts"]
    assert spec["volumes"][-1:] == EVERYTHING["extraVolumes"]
    assert set(VALUES["podSecurityContext"]) - set(spec["securityContext"]) == {"runAsUser", "runAsGroup", "fsGroup"}


def test_without_protection_nothing_is_mounted_and_no_port_is_told_otherwise(template: Template) -> None:
    options = options_in(template(PAGE), NAMESPACE)
    assert (options.tls_cert_file, options.tls_private_key_file) == (None, None)
    assert (options.page_audiences, options.page_hosts) == ((), ())
    assert (options.metrics_secure, options.metrics_require_token) == (False, False)
    spec = one(template(PAGE), "Deployment")["spec"]["template"]["spec"]
    assert "tls" not in {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("release", ["vcd", "night"])
def test_prometheus_is_told_how_to_ask(template: Template, release: str) -> None:
    found = template(ASKED, release=release)
    service = one(found, "Service")
    (endpoint,) = one(found, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", service["metadata"]["name"])
    assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "vcd-scheduler-tls", "key": "ca.crt"}
    assert service["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    own = one(template(EVERYTHING), "ServiceMonitor")["spec"]["endpoints"][0]
    assert own["tlsConfig"] == {"insecureSkipVerify": True}


def test_scrapers_and_vcd_get_the_roles_that_tokens_take(template: Template) -> None:
    named = {**ASKED, "metrics": {**ASKED["metrics"], "readerClusterRole": {"name": "night-scrapers"}}}
    found = template(named)
    assert found["ClusterRole", "", "night-scrapers"]["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    bound = [manifest["roleRef"]["name"] for manifest in found.values() if "roleRef" in manifest]
    assert "night-scrapers" not in bound
    only_asked = template({**ASKED, "eventLog": {"shared": False}})
    added = grants(only_asked.values(), "vcd-scheduler", NAMESPACE) - grants(
        template(APART).values(), "vcd-scheduler", NAMESPACE
    )
    assert {each.resource for each in added} == {"tokenreviews", "subjectaccessreviews"}
    assert not [name for kind, _, name in template() if "metrics" in name]


def test_the_ingress_of_the_examples_leads_to_the_page(template: Template) -> None:
    (ingress,) = documents(INGRESS / "ingress.yaml")
    certificates = {each["spec"]["secretName"]: each["spec"]["dnsNames"] for each in documents(CERTIFICATES)}
    found = template({**BEHIND, **NETWORK})
    options = options_in(found, NAMESPACE)
    (rule,) = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    service = found["Service", ingress["metadata"]["namespace"], backend["name"]]
    (port,) = [each for each in service["spec"]["ports"] if each["name"] == backend["port"]["name"]]
    pod = one(found, "Deployment")["spec"]["template"]
    (served,) = [each for each in pod["spec"]["containers"][0]["ports"] if each["name"] == port["targetPort"]]
    assert options.view_address == f":{served['containerPort']}"
    assert (served["containerPort"], "TCP") in let_through(one(found, "NetworkPolicy"), "ingress")
    assert (options.page_hosts, options.page_url) == ((rule["host"],), f"https://{rule['host']}")
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (secret,) = [volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume]
    assert f"{backend['name']}.{NAMESPACE}.svc" in certificates[secret]


@pytest.mark.parametrize(("more", "port"), [({}, ("http", 80)), (SECRET, ("https", 443))])
def test_the_pages_service_says_how_it_is_asked(
    template: Template, more: dict[str, Any], port: tuple[str, int]
) -> None:
    found = template({"page": {"enabled": True, "service": {"enabled": True}}, **more})
    (served,) = found["Service", NAMESPACE, "vcd-scheduler-page"]["spec"]["ports"]
    assert (served["name"], served["port"]) == port
    assert ("Service", NAMESPACE, "vcd-scheduler-page") not in template({**PAGE, **more})


def test_a_persistent_log_is_on_a_claim_of_each_replica(template: Template) -> None:
    ordinary, found = template(), template(PERSISTENT)
    before, after = one(ordinary, "Deployment")["spec"], one(found, "StatefulSet")["spec"]
    (claim,) = after["volumeClaimTemplates"]
    volumes = before["template"]["spec"]["volumes"]
    before["template"]["spec"]["volumes"] = [
        volume for volume in volumes if volume["name"] != claim["metadata"]["name"]
    ]
    assert len(volumes) == 1 + len(before["template"]["spec"]["volumes"])
    (container,) = before["template"]["spec"]["containers"]
    container["env"] = [each for each in container["env"] if each["name"] != VOLUME_SIZE]
    assert after["template"] == before["template"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "22Gi"}},
    }
    services = {name: manifest for (kind, _, name), manifest in found.items() if kind == "Service"}
    headless = services[after["serviceName"]]["spec"]
    assert (headless["clusterIP"], headless["selector"]) == ("None", after["selector"]["matchLabels"])


def test_a_service_monitor_reads_each_replica_once(template: Template) -> None:
    found = template({**PERSISTENT, **MONITOR})
    monitor = one(found, "ServiceMonitor")["spec"]
    services = [manifest for manifest in found.values() if manifest["kind"] == "Service"]
    (port,) = [endpoint["port"] for endpoint in monitor["endpoints"]]
    read = [
        service["metadata"]["name"]
        for service in services
        if monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        and port in {each["name"] for each in service["spec"]["ports"]}
    ]
    assert (len(services), read) == (2, ["vcd-scheduler"])


def test_without_metrics_nothing_of_them_is_served(template: Template) -> None:
    found = template({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}, **NETWORK})
    assert not {"Service", "ServiceMonitor"} & {kind for kind, _, _ in found}
    assert options_in(found, NAMESPACE).enable_metrics is False
    assert let_through(one(found, "NetworkPolicy"), "ingress") == [(11251, "TCP"), (8444, "TCP")]


def test_the_network_policy_can_be_narrowed(template: Template) -> None:
    spec = one(template(EVERYTHING), "NetworkPolicy")["spec"]
    peers = {rule["ports"][0]["port"]: rule.get("from") for rule in spec["ingress"]}
    narrow = EVERYTHING["networkPolicy"]
    among = [{"podSelector": spec["podSelector"]}]
    assert peers == {8080: narrow["metricsFrom"], 11251: None, 8090: narrow["pageFrom"], 8444: among, 8091: None}
    assert spec["egress"][-3] == {
        "ports": [{"port": 8443, "protocol": "TCP"}],
        "to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}, {"ipBlock": {"cidr": "2001:db8::/64"}}],
    }
    assert spec["egress"][-1:] == narrow["extraEgress"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_budget_never_keeps_the_only_replica(template: Template, replicas: int) -> None:
    assert ("PodDisruptionBudget" in {kind for kind, _, _ in template({"replicas": replicas})}) is (replicas > 1)


def test_the_roles_that_vcd_prints_can_be_given(template: Template) -> None:
    policy = read_policy(
        "actions: allocate\ntiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n"
        "      deviceshare.VGPUEnable: true\n      deviceshare.KnownGeometriesCMNamespace: devices\n"
    )
    printed = roles_for(policy, "vcd-scheduler", NAMESPACE)
    roles = [each for each in printed if each["kind"] in {"Role", "ClusterRole"}]
    assert {each["kind"] for each in roles} == {"Role", "ClusterRole"}
    given = [{**each["metadata"], "rules": each["rules"]} for each in roles]
    found = template({"rbac": {"extraRoles": given}}).values()
    expected = grants([*render(BASE).values(), *printed], "vcd-scheduler", NAMESPACE) | REVIEWS
    assert grants(found, "vcd-scheduler", NAMESPACE) == expected


def test_the_page_can_be_read_by_who_gets_the_role(template: Template) -> None:
    found = template({"page": {"enabled": True, "readerClusterRole": {"name": "readers"}}}, release="night")
    assert found["ClusterRole", "", "readers"]["rules"] == [{"nonResourceURLs": ["/vcd/page"], "verbs": ["get"]}]
    bound = [manifest["roleRef"]["name"] for manifest in found.values() if "roleRef" in manifest]
    assert "readers" not in bound
    reviews = {each.resource for each in rule_grants(found["ClusterRole", "", "night-vcd-scheduler-page"]["rules"], "")}
    assert reviews == {"tokenreviews", "subjectaccessreviews"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 3}, "at '': additional properties 'replica' not allowed"),
        ({"scheduler": {"nam": "x"}}, "at '/scheduler': additional properties 'nam' not allowed"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"image": {"pullPolicy": "always"}}, "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent'"),
        ({"page": True}, "at '/page': got boolean, want object"),
        ({"leaderElection": {"enabled": False}}, "leaderElection.enabled: without it nothing keeps replicas apart"),
        (
            {"leaderElection": {"enabled": False}, "replicas": 1},
            "leaderElection.enabled: without it two pods may never run; set strategy.type to Recreate",
        ),
        ({"scheduler": {"shadow": True}}, "scheduler.shadow: a second replica would be another shadow"),
        (
            {"scheduler": {"shadow": True}, "replicas": 1, "eventLog": {"archive": {"to": "s3://logs"}}},
            "scheduler.shadow: a shadow's log is not shipped; leave eventLog.archive.to out",
        ),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name: must be given, since serviceAccount.create"),
        ({"scheduler": {"configuration": "actions: ["}}, "scheduler.configuration: error converting YAML"),
        ({"metrics": {"secure": True}}, "metrics.secure: needs a certificate; name its Secret in tls.secretName"),
        ({"page": {"service": {"enabled": True}}}, "page.service: there is nothing behind it; set page.enabled, too"),
        ({"page": {"hosts": ["https://vcd.example.com"]}}, "at '/page/hosts/0': 'https://vcd.example.com' does not"),
        ({"page": {"audiences": ["a,b"]}}, "at '/page/audiences/0': 'a,b' does not match pattern"),
    ],
    ids=str,
)
def test_bad_values_are_refused_with_a_message(
    run: Callable[..., subprocess.CompletedProcess[str]], values: dict[str, Any], message: str
) -> None:
    done = run("template", "vcd", str(CHART), "--kube-version", NEWEST, values=values)
    assert done.returncode != 0
    assert message in done.stderr.replace("\n", " ")


def test_the_admission_policies_are_of_the_schedulers_that_are_named(template: Template) -> None:
    found = template({"validation": {"enabled": True}, "scheduler": {"name": "night", "extraNames": ["day"]}})
    (condition,) = found["ValidatingAdmissionPolicy", "", "vcd-scheduler-pods"]["spec"]["matchConditions"]
    assert condition["expression"].startswith("object.spec.schedulerName in ['night', 'day']")


def test_a_second_scheduler_name_leaves_the_first(template: Template) -> None:
    found = template({"scheduler": {"extraNames": ["day"]}})
    assert options_in(found, NAMESPACE).scheduler_names == ("volcano", "day")


def own_flags() -> dict[str, str]:
    """The flags that the chart refuses beside its own, with the values that say them."""
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    return dict(yaml.safe_load(helpers.split('{{- define "vcd.ownFlags" -}}')[1].split("{{-")[0]))


def test_the_flags_that_the_templates_give_are_the_charts_own(template: Template) -> None:
    given: set[str] = set()
    for values in MATRIX.values():
        ours = {**values, "extraEnv": [], "scheduler": {**values.get("scheduler", {}), "extraArgs": []}}
        (workload,) = [each for each in template(ours).values() if each["kind"] in {"Deployment", "StatefulSet"}]
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        words = normalise_arguments((*container["command"][2:], *container["args"]))
        given |= {word.removeprefix("--").partition("=")[0] for word in words}
        variables = {each["name"] for each in container["env"]}
        given |= {flag.name for flag in FLAGS if flag.variable in variables}
    with_effect = {flag.name for flag in FLAGS if not flag.idle}
    assert given & with_effect <= own_flags().keys() <= with_effect


def test_the_values_that_say_the_charts_own_flags_are_there() -> None:
    for path in (path for text in own_flags().values() for path in text.split(" or ") if path):
        value: Any = VALUES
        for name in path.split("."):
            value = value[name]


@pytest.mark.parametrize(
    "given",
    [
        *("--leader-elect=false", "-leader_elect=false", "--shadow", "--listen-address=:9999", "--view-address=:1"),
        *("--healthz-address=:9999", "--replicas-address=:9999", "--enable-healthz=false", "-v=9", "-v9", "--v=9"),
        *("VCD_SHADOW", "VCD_LISTEN_ADDRESS", "VCD_HEALTHZ_ADDRESS", "VCD_V"),
    ],
)
def test_what_the_chart_writes_itself_is_refused_beside_it(
    run: Callable[..., subprocess.CompletedProcess[str]], given: str
) -> None:
    variable = given.startswith("VCD_")
    values = {"extraEnv": [{"name": given}]} if variable else {"scheduler": {"extraArgs": ["--seed=1", given]}}
    done = run("template", "vcd", str(CHART), "--kube-version", NEWEST, values=values)
    flag = normalise_arguments([given.removeprefix("VCD_").lower() if variable else given])[0]
    said = own_flags()[flag.removeprefix("--").partition("=")[0].replace("_", "-")]
    instead = f"set {said} instead" if said else "the probes rely on it; leave it out"
    assert f"{'extraEnv' if variable else 'scheduler.extraArgs'}: {given}: {instead}" in done.stderr


@pytest.mark.parametrize("kind", ["emptyDir", "ephemeral", "persistent"])
def test_vcd_is_told_what_its_volume_holds_where_the_disk_has_more(template: Template, kind: str) -> None:
    storage = {"type": kind, "size": "30Gi"}
    made = one(template({"eventLog": {"storage": storage}}), "StatefulSet" if kind == "persistent" else "Deployment")
    env = made["spec"]["template"]["spec"]["containers"][0]["env"]
    told = [each["value"] for each in env if each["name"] == VOLUME_SIZE]
    assert told == (["30Gi"] if kind == "emptyDir" else [])


@pytest.mark.parametrize(
    ("size", "kept", "taken"),
    [
        *(("20Gi", "", True), ("19.9Gi", "", False), ("20G", "", False), ("21.5G", "", True)),
        *(("100Gi", "50Gi", True), ("100Gi", "50.1Gi", False), ("1Ti", "512Gi", True), ("1T", "512Gi", False)),
        *(("1Gi", "0", True), ("1073741824", "512Mi", True), ("1073741823", "512Mi", False)),
        ("20000m", "1Gi", True),  # no size of a log: not read
    ],
)
@pytest.mark.parametrize("kind", ["emptyDir", "ephemeral", "persistent"])
def test_a_logs_volume_holds_it_twice(
    run: Callable[..., subprocess.CompletedProcess[str]], kind: str, size: str, kept: str, taken: bool
) -> None:
    values = {"eventLog": {"storage": {"type": kind, "size": size}, "retention": {"size": kept}}}
    done = run("template", "vcd", str(CHART), "--kube-version", NEWEST, values=values)
    assert (done.returncode == 0) is taken, done.stderr
    if not taken:
        said = f"eventLog.storage.size: {size} is less than twice eventLog.retention.size ({kept or '10Gi'})"
        assert said in done.stderr


@pytest.mark.parametrize(
    ("replicas", "least", "taken"),
    [(2, 1, True), (2, 2, False), (3, 2, True), (3, 4, False), (3, "50%", True), (2, "100%", False), (2, "51%", False)],
)
def test_a_budget_lets_a_node_be_drained(
    run: Callable[..., subprocess.CompletedProcess[str]], replicas: int, least: int | str, taken: bool
) -> None:
    values = {"replicas": replicas, "podDisruptionBudget": {"minAvailable": least}}
    done = run("template", "vcd", str(CHART), "--kube-version", NEWEST, values=values)
    assert (done.returncode == 0) is taken, done.stderr
    said = (
        f"podDisruptionBudget.minAvailable: with {least} of {replicas} replicas no node that one is on could be drained"
    )
    assert (said in done.stderr) is not taken
    off = {**values, "podDisruptionBudget": {"minAvailable": least, "enabled": False}}
    assert run("template", "vcd", str(CHART), "--kube-version", NEWEST, values=off).returncode == 0


@pytest.mark.parametrize(("version", "policy"), [("1.26.9", None), ("1.27.0", "AlwaysAllow")])
def test_a_replica_that_is_not_ready_keeps_no_node(template: Template, version: str, policy: str | None) -> None:
    budget = one(template(version=version), "PodDisruptionBudget")["spec"]
    assert budget.get("unhealthyPodEvictionPolicy") == policy


def test_a_reader_that_is_not_made_is_not_named(template: Template) -> None:
    values = {"eventLog": {"reader": {"create": False}}}
    assert "annotations" not in one(template(values), "Deployment")["spec"]["template"]["metadata"]
    named = {**values, "podAnnotations": {"vcd.volcano.sh/reader": "mine"}}
    annotations = one(template(named), "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations == named["podAnnotations"]


def test_admission_policies_are_refused_where_they_are_not_known(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run("template", "vcd", str(CHART), "--kube-version", "1.29.9", values={"validation": {"enabled": True}})
    assert "validation.enabled: needs Kubernetes 1.30 or later" in done.stderr


@pytest.mark.parametrize("controller", ["podgroup", "queue"])
def test_each_controller_takes_its_own_rights(template: Template, controller: str) -> None:
    def granted(*controllers: str) -> set[Grant]:
        found = template({"scheduler": {"controllers": list(controllers)}}).values()
        return grants(found, "vcd-scheduler", NAMESPACE)

    added = {(grant.verb, grant.resource) for grant in granted(controller) - granted()}
    assert (("patch", "queues") in added, ("create", "podgroups") in added) == (
        controller == "queue",
        controller == "podgroup",
    )


def test_a_kubernetes_that_is_too_old_is_refused(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run("template", "vcd", str(CHART), "--kube-version", "1.24.9")
    assert "requires kubeVersion: >=1.25.0-0" in done.stderr


def test_it_can_be_packaged(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    done = run("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / f"vcd-{__version__}.tgz") as archive:
        packed = set(archive.getnames())
    files = {f"vcd/{path.relative_to(CHART)}" for path in CHART.rglob("*") if path.is_file()}
    assert packed == files


def test_the_package_makes_what_the_folder_makes(
    run: Callable[..., subprocess.CompletedProcess[str]], template: Template, tmp_path: Path
) -> None:
    assert run("package", str(CHART), "--destination", str(tmp_path)).returncode == 0
    package = tmp_path / f"vcd-{__version__}.tgz"
    assert template(ALONE, "--include-crds", chart=package) == template(ALONE, "--include-crds")
