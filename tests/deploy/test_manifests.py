"""What deploy/ renders to: known fields only, references that resolve, a pod without privileges, the least RBAC."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.kustomize import Key, Manifest, render
from tests.deploy.rbac import Grant, allows, grants
from tests.deploy.schema import problems
from vcd.daemon.options import CONTROLLERS, parse_options
from vcd.model.kinds import KINDS, Kind
from vcd.model.quantity import parse_units
from vcd.scheduling.framework.arguments import read_arguments
from vcd.scheduling.framework.registry import ALWAYS_READ, actions, plugins
from vcd.view.visibility import PAGE

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CRDS = ROOT / "vcd" / "embedded" / "crds"
POLICY = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
INSTALLED = yaml.safe_load((CRDS / "Kustomization").read_text())["resources"]
"""The files of the custom resources that a cluster without Volcano gets."""
NAMESPACE = "volcano-system"
SCHEMAS = yaml.safe_load(Path(__file__).with_name("schemas.yaml").read_text())

BASE = DEPLOY / "base"
REPLACE = DEPLOY / "overlays" / "replace-vc-scheduler"
STANDALONE = DEPLOY / "overlays" / "standalone"
SHADOW = DEPLOY / "overlays" / "shadow"
EXAMPLE = ROOT / "examples" / "ingress"
WITHOUT_CRDS = [BASE, REPLACE]
REPLICATED = [BASE, REPLACE, STANDALONE]
ALL = [*REPLICATED, SHADOW]

# The arguments that Volcano's chart gives vc-scheduler with leader election on, without its trailing "2>&1",
# which is for a shell that no container has.
CHART_ARGS = [
    "--logtostderr",
    "--scheduler-conf=/volcano.scheduler/volcano-scheduler.conf",
    "--enable-healthz=true",
    "--enable-metrics=true",
    "--leader-elect=true",
    "--leader-elect-resource-namespace=volcano-system",
    "--kube-api-qps=2000",
    "--kube-api-burst=2000",
    "--schedule-period=1s",
    "--node-worker-threads=20",
    "-v=3",
]
CHART_CONF = {
    "actions": "enqueue, allocate, backfill",
    "tiers": [
        {"plugins": [{"name": "priority"}, {"name": "gang", "enablePreemptable": False}, {"name": "conformance"}]},
        {
            "plugins": [
                {"name": "overcommit"},
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "proportion"},
                {"name": "nodeorder"},
                {"name": "binpack"},
            ]
        },
    ],
}
# Every call that changes something: what the commit loop and the Lease write (docs/laws.md, laws 3 and 4).
WRITES = {
    Grant("create", "", "pods/binding", "", ""),
    Grant("delete", "", "pods", "", ""),
    Grant("patch", "", "pods", NAMESPACE, ""),
    Grant("patch", "", "pods/status", "", ""),
    Grant("patch", "", "persistentvolumeclaims", "", ""),
    Grant("patch", "", "persistentvolumes", "", ""),
    Grant("patch", "scheduling.volcano.sh", "podgroups", "", ""),
    Grant("create", "scheduling.volcano.sh", "queues", "", ""),
    Grant("patch", "scheduling.volcano.sh", "queues/status", "", ""),
    Grant("create", "", "events", "", ""),
    Grant("patch", "", "events", "", ""),
    Grant("create", "coordination.k8s.io", "leases", NAMESPACE, ""),
    Grant("update", "coordination.k8s.io", "leases", NAMESPACE, "volcano"),
}
READ_TO_WRITE = {
    *(Grant("get", "", "pods", "", ""), Grant("get", "coordination.k8s.io", "leases", NAMESPACE, "volcano")),
    *(Grant("get", "", resource, "", "") for resource in ("persistentvolumeclaims", "persistentvolumes")),
    *(Grant("get", "scheduling.volcano.sh", resource, "", "") for resource in ("podgroups", "queues")),
}
CUSTOM_METRICS = ("nodes/node_cpu_usage_avg", "nodes/node_memory_usage_avg")
SAMPLED = {
    Grant("list", "metrics.k8s.io", "nodes", "", ""),
    *(Grant("get", "custom.metrics.k8s.io", resource, "", "") for resource in CUSTOM_METRICS),
}
"""What the daemon takes samples of usage from, when the configuration says so."""
VOLCANO_JOBS = Grant("list", "batch.volcano.sh", "jobs", "", "")
"""What --check-volcano-jobs needs."""


VOLUME_SIZE = "VCD_EVENT_LOG_VOLUME_SIZE"


def names(folder: Path) -> str:
    return str(folder.relative_to(DEPLOY))


def one(manifests: dict[Key, Manifest], kind: str) -> Manifest:
    """The only manifest of a kind."""
    (manifest,) = [m for (found, _, _), m in manifests.items() if found == kind]
    return manifest


def pod_of(manifests: dict[Key, Manifest]) -> Any:
    return one(manifests, "Deployment")["spec"]["template"]


FOLLOWED = {
    ("ServiceAccount", NAMESPACE, "vcd-reader"),
    ("Role", NAMESPACE, "vcd-operator"),
    *(
        (kind, "", name)
        for kind in ("ClusterRole", "ClusterRoleBinding")
        for name in ("vcd-scheduler-log", "vcd-log-reader")
    ),
}
"""What comes with one log for all replicas."""
REVIEWS = {
    Grant("create", "authentication.k8s.io", "tokenreviews", "", ""),
    Grant("create", "authorization.k8s.io", "subjectaccessreviews", "", ""),
}
"""By which a replica judges who follows its log."""


def granted(folder: Path) -> set[Grant]:
    return grants(render(folder).values(), "vcd-scheduler", NAMESPACE)


@pytest.mark.parametrize("folder", ALL, ids=names)
def test_every_field_is_known_and_of_its_type(folder: Path) -> None:
    found = [
        f"{manifest['kind']}{problem}"
        for manifest in render(folder).values()
        if manifest["kind"] != "CustomResourceDefinition"
        for problem in problems(
            manifest, SCHEMAS["kinds"][f"{manifest['apiVersion']} {manifest['kind']}"], SCHEMAS["definitions"]
        )
    ]
    assert found == []


def test_the_check_of_fields_finds_a_misspelt_one(tmp_path: Path) -> None:
    monitor = one(render(overlay_of(tmp_path, "servicemonitor")), "ServiceMonitor")
    schema = SCHEMAS["kinds"]["monitoring.coreos.com/v1 ServiceMonitor"]
    assert list(problems(monitor, schema, SCHEMAS["definitions"])) == []
    monitor["spec"]["endpoints"][0]["scrapeTimeOut"] = "1s"
    assert list(problems(monitor, schema, SCHEMAS["definitions"])) == [
        ".spec.endpoints[0]: scrapeTimeOut is not a field"
    ]


@pytest.mark.parametrize("folder", ALL, ids=names)
def test_everything_namespaced_is_in_volcanos_namespace(folder: Path) -> None:
    reading = {key for key in render(folder) if key[0] in {"Role", "RoleBinding"}}
    assert {namespace for _, namespace, _ in render(folder).keys() - reading} == {"", NAMESPACE}
    lease = set() if folder == SHADOW else {NAMESPACE}
    assert {namespace for _, namespace, _ in reading} == lease | {"kube-system"}


@pytest.mark.parametrize("folder", ALL, ids=names)
def test_selectors_meet_the_pods_and_the_service(folder: Path) -> None:
    manifests = render(folder)
    labels = pod_of(manifests)["metadata"]["labels"].items()
    selectors = [
        one(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
        *(m["spec"]["selector"]["matchLabels"] for m in manifests.values() if m["kind"] == "PodDisruptionBudget"),
        one(manifests, "Service")["spec"]["selector"],
    ]
    assert all(selector.items() <= labels for selector in selectors)


@pytest.mark.parametrize("folder", ALL, ids=names)
def test_named_ports_exist(folder: Path) -> None:
    manifests = render(folder)
    (container,) = pod_of(manifests)["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    probed = {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    service = one(manifests, "Service")["spec"]["ports"]
    assert probed | {port["targetPort"] for port in service} <= ports


def test_probes_ask_for_health_and_readiness() -> None:
    (container,) = pod_of(render(BASE))["spec"]["containers"]
    paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert paths == ["/healthz", "/healthz", "/readyz"]


@pytest.mark.parametrize("folder", ALL, ids=names)
def test_mounts_have_their_volumes_and_the_log_is_on_one(folder: Path) -> None:
    spec = pod_of(render(folder))["spec"]
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in spec["volumes"]}
    (log,) = [arg for arg in container["command"] if arg.startswith("--event-log=")]
    assert Path(log.removeprefix("--event-log=")).parent == Path(mounts["event-log"])


def test_the_logs_volume_holds_twice_what_a_log_keeps(tmp_path: Path) -> None:
    """One may be kept whole beside the new one."""
    kept = parse_options({}).retention_size
    assert kept
    spec = pod_of(render(BASE))["spec"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "event-log"]
    claimed = one(render(overlay_of(tmp_path, "statefulset")), "StatefulSet")["spec"]["volumeClaimTemplates"]
    sizes = [volume["emptyDir"]["sizeLimit"], claimed[0]["spec"]["resources"]["requests"]["storage"]]
    assert min(map(parse_units, sizes)) >= 2 * kept


@pytest.mark.parametrize("component", ["", "log-on-claims", "statefulset"])
def test_vcd_is_told_what_its_volume_holds_where_the_disk_has_more(tmp_path: Path, component: str) -> None:
    found = render(overlay_of(tmp_path, component) if component else BASE)
    spec = one(found, "StatefulSet" if component == "statefulset" else "Deployment")["spec"]["template"]["spec"]
    limits = [
        volume["emptyDir"]["sizeLimit"]
        for volume in spec["volumes"]
        if volume["name"] == "event-log" and "emptyDir" in volume
    ]
    told = [each["value"] for each in spec["containers"][0]["env"] if each["name"] == VOLUME_SIZE]
    assert told == limits
    assert bool(limits) is not bool(component)


def test_the_pod_asks_for_some_of_the_nodes_disk() -> None:
    (container,) = pod_of(render(BASE))["spec"]["containers"]
    assert parse_units(container["resources"]["requests"]["ephemeral-storage"]) > 0


@pytest.mark.parametrize("folder", REPLICATED, ids=names)
def test_two_replicas_keep_apart_and_one_survives_a_drain(folder: Path) -> None:
    manifests = render(folder)
    assert one(manifests, "Deployment")["spec"]["replicas"] == 2
    budget = one(manifests, "PodDisruptionBudget")["spec"]
    assert (budget["minAvailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    (term,) = pod_of(manifests)["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert term["podAffinityTerm"]["labelSelector"] == one(manifests, "Deployment")["spec"]["selector"]


@pytest.mark.parametrize("folder", ALL, ids=names)
def test_the_pod_has_no_privileges(folder: Path) -> None:
    spec = pod_of(render(folder))["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_pod_is_not_left_to_itself_to_schedule() -> None:
    assert pod_of(render(BASE))["spec"]["schedulerName"] == "default-scheduler"


def test_the_configuration_is_the_charts() -> None:
    assert yaml.safe_load(one(render(BASE), "ConfigMap")["data"]["volcano-scheduler.conf"]) == CHART_CONF


@pytest.mark.parametrize("folder", [BASE, STANDALONE], ids=names)
def test_the_configuration_is_mounted_where_the_arguments_look(folder: Path) -> None:
    manifests = render(folder)
    spec = pod_of(manifests)["spec"]
    (volume,) = [volume for volume in spec["volumes"] if "configMap" in volume]
    config = one(manifests, "ConfigMap")
    (mount,) = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    (key,) = config["data"]
    assert f"--scheduler-conf={mount['mountPath']}/{key}" in spec["containers"][0]["args"]


@pytest.mark.parametrize("folder", [BASE, STANDALONE], ids=names)
def test_the_lease_is_in_the_pods_namespace(folder: Path) -> None:
    (container,) = pod_of(render(folder))["spec"]["containers"]
    expected = "--leader-elect-resource-namespace=$(POD_NAMESPACE)"
    assert container["args"] == [
        expected if argument.startswith("--leader-elect-resource-namespace=") else argument for argument in CHART_ARGS
    ]
    named = (("POD_NAMESPACE", "metadata.namespace"), ("POD_NAME", "metadata.name"))
    given = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in named]
    configmap = {"name": "VCD_SCHEDULER_CONFIGMAP", "value": "vcd-scheduler-configmap"}
    acting = {"name": "VCD_CONTROLLERS", "value": ",".join(CONTROLLERS)}
    volume = {"name": VOLUME_SIZE, "value": "22Gi"}
    expected_env = [*given, configmap, volume, *([acting] if folder == STANDALONE else [])]
    of_the_log = {"POD_IP", "VCD_REPLICAS_ADDRESS", "VCD_REPLICAS_TOKEN_FILE"} if folder == STANDALONE else set()
    found = [each for each in container["env"] if each["name"] not in of_the_log]
    assert sorted(found, key=str) == sorted(expected_env, key=str)
    assert of_the_log <= {each["name"] for each in container["env"]}


def test_in_vc_schedulers_place_the_arguments_are_the_charts() -> None:
    (container,) = pod_of(render(REPLACE))["spec"]["containers"]
    assert container["args"] == CHART_ARGS


def test_in_vc_schedulers_place_its_configmap_is_read_and_none_is_shipped() -> None:
    manifests = render(REPLACE)
    (volume,) = [volume for volume in pod_of(manifests)["spec"]["volumes"] if "configMap" in volume]
    assert volume["configMap"]["name"] == "volcano-scheduler-configmap"
    assert not [key for key in manifests if key[0] == "ConfigMap"]


def test_in_vc_schedulers_place_nothing_of_volcanos_is_overwritten() -> None:
    followed = {name for _, _, name in FOLLOWED}
    assert {name for _, _, name in render(REPLACE)} == {
        "vcd-scheduler",
        "vcd-scheduler-label",
        "vcd-scheduler-vgpu",
        "vcd-scheduler-volcano-jobs",
    } | followed


def test_the_values_for_volcanos_chart_leave_vc_scheduler_without_pods() -> None:
    values = yaml.safe_load((REPLACE / "volcano-values.yaml").read_text())
    assert values == {"custom": {"scheduler_replicas": 0}}


def test_the_patch_for_volcanos_deployment_leaves_vc_scheduler_without_pods() -> None:
    assert yaml.safe_load((REPLACE / "vc-scheduler-off.yaml").read_text()) == {"spec": {"replicas": 0}}


def test_the_log_can_be_put_on_a_claim_of_each_pod(tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, "log-on-claims")
    (volume,) = [v for v in pod_of(render(overlay))["spec"]["volumes"] if v["name"] == "event-log"]
    assert set(volume) == {"name", "ephemeral"}
    found = list(problems(volume, SCHEMAS["definitions"]["volume"], SCHEMAS["definitions"]))
    assert found == []


@pytest.mark.parametrize("before", [(), ("one-log", "page-for-token-holders")], ids=["alone", "with others"])
def test_the_log_can_be_put_on_a_claim_that_outlives_its_pod(tmp_path: Path, before: tuple[str, ...]) -> None:
    (tmp_path / "without").mkdir()
    without = render(overlay_of(tmp_path / "without", *before))
    found = render(overlay_of(tmp_path, *before, "statefulset"))
    deployment, kept = one(without, "Deployment")["spec"], one(found, "StatefulSet")["spec"]
    (claim,) = kept["volumeClaimTemplates"]
    volumes = deployment["template"]["spec"]["volumes"]
    deployment["template"]["spec"]["volumes"] = [each for each in volumes if each["name"] != claim["metadata"]["name"]]
    assert len(volumes) == 1 + len(deployment["template"]["spec"]["volumes"])
    (container,) = deployment["template"]["spec"]["containers"]
    container["env"] = [each for each in container["env"] if each["name"] != VOLUME_SIZE]
    assert kept["template"] == deployment["template"]
    assert (kept["replicas"], kept["selector"]) == (deployment["replicas"], deployment["selector"])
    headless = found["Service", NAMESPACE, kept["serviceName"]]["spec"]
    assert (headless["clusterIP"], headless["selector"]) == ("None", kept["selector"]["matchLabels"])
    for kind in ("StatefulSet", "Service"):
        for manifest in (each for (of, _, _), each in found.items() if of == kind):
            kubernetes_validate.validate(manifest, "1.30", strict=True)


@pytest.mark.parametrize("folder", [*ALL, EXAMPLE], ids=lambda folder: folder.name)
def test_no_kind_is_applied_that_an_operator_brings(folder: Path) -> None:
    """Else `kubectl apply` and `kubectl delete` fail at it where the operator is missing; a component brings it."""
    known = {"cert-manager.io"} if folder == EXAMPLE else set()
    groups = {each["apiVersion"].rpartition("/")[0] for each in render(folder).values()}
    assert {group for group in groups if "." in group and not group.endswith(".k8s.io")} == known


def test_no_file_of_patches_deletes_two_objects() -> None:
    """The kustomize within kubectl 1.32 panics at that."""
    files = [path for path in DEPLOY.rglob("*.yaml") if DEPLOY / "chart" not in path.parents]
    assert [path for path in files if path.read_text().count("$patch: delete\napiVersion") > 1] == []


def test_the_service_monitor_comes_along_where_it_is_asked_for(tmp_path: Path) -> None:
    found = render(overlay_of(tmp_path, "servicemonitor"))
    assert set(found) - set(render(BASE)) == {("ServiceMonitor", NAMESPACE, "vcd-scheduler")}
    monitor, service = one(found, "ServiceMonitor")["spec"], one(found, "Service")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}


def test_metrics_for_token_holders_need_no_prometheus_operator(tmp_path: Path) -> None:
    assert "ServiceMonitor" not in {kind for kind, _, _ in render(overlay_of(tmp_path, "metrics-for-token-holders"))}


def test_the_page_is_exposed_only_with_the_right_to_review_tokens_and_access(tmp_path: Path) -> None:
    rendered = render(overlay_of(tmp_path, "page-for-token-holders"))
    (container,) = pod_of(rendered)["spec"]["containers"]
    assert {"name": "VCD_VIEW_ADDRESS", "value": ":8090"} in container["env"]
    assert {port["name"] for port in container["ports"]} == {"metrics", "healthz", "page"}
    added = grants(rendered.values(), "vcd-scheduler", NAMESPACE) - granted(BASE)
    assert {(grant.verb, grant.group, grant.resource) for grant in added} == {
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    }
    reader = rendered["ClusterRole", "", "vcd-page-reader"]
    assert reader["rules"] == [{"nonResourceURLs": [PAGE.path], "verbs": ["get"]}]


def test_the_network_policy_lets_in_what_the_pod_serves_and_out_what_it_asks(tmp_path: Path) -> None:
    rendered = render(overlay_of(tmp_path, "network-policy", "page-for-token-holders", "one-log"))
    policy = one(rendered, "NetworkPolicy")
    schema = SCHEMAS["kinds"]["networking.k8s.io/v1 NetworkPolicy"]
    assert list(problems(policy, schema, SCHEMAS["definitions"])) == []
    assert policy["spec"]["podSelector"] == one(rendered, "Deployment")["spec"]["selector"]
    (container,) = pod_of(rendered)["spec"]["containers"]
    served = [port["containerPort"] for port in container["ports"]]
    assert sorted(let_through(policy, "ingress")) == sorted((port, "TCP") for port in served)
    log = next(port["containerPort"] for port in container["ports"] if port["name"] == "log")
    among = {"podSelector": policy["spec"]["podSelector"]}
    assert policy["spec"]["ingress"][-1] == {"from": [among], "ports": [{"port": log, "protocol": "TCP"}]}
    assert policy["spec"]["egress"][-1] == {"to": [among], "ports": [{"port": log, "protocol": "TCP"}]}
    dns = [(port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")]
    assert let_through(policy, "egress") == [*dns, (443, "TCP"), (6443, "TCP"), (log, "TCP")]


def let_through(policy: Manifest, way: str) -> list[tuple[int, str]]:
    """The ports of all rules of a NetworkPolicy, `way` being ingress or egress."""
    return [(port["port"], port["protocol"]) for rule in policy["spec"][way] for port in rule["ports"]]


def overlay_of(folder: Path, *components: str, base: str = "base", **fields: Any) -> Path:
    """A kustomization in `folder` of the base and components, as a user would write it: with relative paths.

    `fields` are what else stands in it.
    """
    deploy = os.path.relpath(DEPLOY, folder.resolve())
    kustomization = {
        "resources": [f"{deploy}/{base}"],
        "components": [f"{deploy}/components/{component}" for component in components],
        **fields,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder


def definitions(folder: Path) -> set[str]:
    return {name for kind, _, name in render(folder) if kind == "CustomResourceDefinition"}


def test_without_volcano_just_the_custom_resources_come_along_that_vcd_watches() -> None:
    watched = {f"{plural}.{group}" for group, plural, _, _ in declared() if group.endswith(".volcano.sh")}
    assert definitions(STANDALONE) == watched
    assert {"podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh"} <= watched


def test_without_volcano_what_acts_for_its_controllers_and_webhooks_comes_along() -> None:
    added = {key for key in render(STANDALONE) if key[0] != "CustomResourceDefinition"} - set(render(BASE))
    policies = {name for kind, _, name in added if kind == "ValidatingAdmissionPolicy"}
    assert policies == {
        "vcd-scheduler-queues",
        "vcd-scheduler-queues-kept",
        "vcd-scheduler-podgroups",
        "vcd-scheduler-pods",
    }
    assert added == {
        ("Namespace", "", NAMESPACE),
        ("ClusterRole", "", "vcd-scheduler-controllers"),
        ("ClusterRoleBinding", "", "vcd-scheduler-controllers"),
        *FOLLOWED,
        *((kind, "", name) for name in policies for kind in POLICY),
    }


def test_every_admission_policy_is_bound_and_denies() -> None:
    rendered = render(STANDALONE)
    bindings = {m["spec"]["policyName"]: m["spec"]["validationActions"] for m in of_kind(rendered, POLICY[1])}
    assert bindings == {m["metadata"]["name"]: ["Deny"] for m in of_kind(rendered, POLICY[0])}


def of_kind(manifests: dict[Key, Manifest], kind: str) -> list[Manifest]:
    return [manifest for (found, _, _), manifest in manifests.items() if found == kind]


def test_without_volcano_vcd_may_do_what_its_controllers_do_and_no_more() -> None:
    assert granted(STANDALONE) - granted(BASE) == {
        *(Grant(verb, "scheduling.volcano.sh", "podgroups", "", "") for verb in ("create", "delete")),
        Grant("patch", "", "pods", "", ""),
        *(Grant("get", "apps", resource, "", "") for resource in ("daemonsets", "replicasets", "statefulsets")),
        Grant("get", "batch", "jobs", "", ""),
        Grant("patch", "scheduling.volcano.sh", "queues", "", ""),
        *REVIEWS,
    }
    (container,) = pod_of(render(STANDALONE))["spec"]["containers"]
    assert {"name": "VCD_CONTROLLERS", "value": ",".join(CONTROLLERS)} in container["env"]


def test_every_pod_may_be_patched_only_where_gates_are_lifted(tmp_path: Path) -> None:
    patch = Grant("patch", "", "pods", "", "")
    assert granted(overlay_of(tmp_path, "queue-gates")) - granted(BASE) == {patch}


def test_volcano_jobs_may_be_listed_where_volcanos_controllers_are_expected(tmp_path: Path) -> None:
    assert granted(overlay_of(tmp_path, "volcano-jobs")) - granted(BASE) == {VOLCANO_JOBS}
    assert VOLCANO_JOBS in granted(REPLACE)
    assert VOLCANO_JOBS not in granted(STANDALONE)


def test_the_first_queues_need_no_step_of_their_own() -> None:
    assert Grant("create", "scheduling.volcano.sh", "queues", "", "") in granted(STANDALONE)
    assert not [name for kind, _, name in render(STANDALONE) if kind == "Queue"]


@pytest.mark.parametrize("folder", WITHOUT_CRDS, ids=names)
def test_rbac_lets_write_only_what_the_daemon_decides(folder: Path) -> None:
    reviews = set() if folder == BASE else REVIEWS
    assert {grant for grant in granted(folder) if grant.verb not in {"get", "list", "watch"}} == WRITES | reviews


@pytest.mark.parametrize("folder", WITHOUT_CRDS, ids=names)
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_rbac_lets_list_and_watch_just_the_kinds_that_vcd_reads(folder: Path, verb: str) -> None:
    read = {grant for grant in granted(folder) - SAMPLED - {VOLCANO_JOBS} if grant.verb == verb}
    assert read == {Grant(verb, *where) for where in declared()}


def declared() -> set[tuple[str, str, str, str]]:
    """What vcd always reads, and what its own plugins and actions declare, with the defaults of their arguments."""
    kinds = [KINDS[name] for name in ALWAYS_READ]
    for each in (*plugins().values(), *actions().values()):
        if each.__module__.startswith("vcd."):
            values, _ = read_arguments(each.arguments, None)
            kinds += [kind.with_arguments(values) if isinstance(kind, Kind) else KINDS[kind] for kind in each.kinds]
    return {(kind.group, kind.plural, kind.namespace, kind.object) for kind in kinds}


def test_every_kind_of_vcds_own_is_one_that_something_reads() -> None:
    assert {(kind.group, kind.plural, "", "") for kind in KINDS.values()} <= declared()


@pytest.mark.parametrize("folder", WITHOUT_CRDS, ids=names)
@pytest.mark.parametrize(("namespace", "name"), [("kube-system", "another"), ("default", "volcano-vgpu-device-config")])
def test_rbac_lets_read_one_config_map_only(folder: Path, namespace: str, name: str) -> None:
    assert not allows(granted(folder), Grant("list", "", "configmaps", namespace, name))
    assert not allows(granted(folder), Grant("watch", "", "configmaps", namespace, ""))


@pytest.mark.parametrize("folder", WITHOUT_CRDS, ids=names)
def test_rbac_lets_get_just_what_is_written_too(folder: Path) -> None:
    assert {grant for grant in granted(folder) - SAMPLED if grant.verb == "get"} == READ_TO_WRITE


@pytest.mark.parametrize("folder", WITHOUT_CRDS, ids=names)
def test_rbac_lets_samples_of_usage_be_taken(folder: Path) -> None:
    assert granted(folder) >= SAMPLED


def test_a_shadow_may_read_what_vcd_reads_and_no_more() -> None:
    found = {grant for grant in granted(BASE) if grant.verb in {"list", "watch"}} | SAMPLED
    assert granted(SHADOW) == found
    (container,) = pod_of(render(SHADOW))["spec"]["containers"]
    assert "--shadow" in container["args"]
    assert one(render(SHADOW), "Deployment")["spec"]["replicas"] == 1


def test_rbac_names_no_wildcard() -> None:
    assert not [grant for grant in granted(BASE) if "*" in {grant.verb, grant.group, grant.resource, grant.name}]


@pytest.mark.parametrize("resource", ["secrets", "serviceaccounts", "pods/exec", "pods/eviction"])
def test_rbac_lets_nobody_at_what_scheduling_does_not_need(resource: str) -> None:
    assert not [grant for grant in granted(BASE) if grant.resource == resource]


@pytest.mark.parametrize(
    ("namespace", "name", "allowed"),
    [(NAMESPACE, "volcano", True), (NAMESPACE, "another", False), ("kube-system", "volcano", False)],
)
def test_rbac_lets_renew_one_lease_only(namespace: str, name: str, allowed: bool) -> None:
    assert allows(granted(BASE), Grant("update", "coordination.k8s.io", "leases", namespace, name)) is allowed


def test_no_other_identity_is_granted_anything() -> None:
    bindings = [m for m in render(BASE).values() if m["kind"].endswith("RoleBinding")]
    subjects = [(s["kind"], s["namespace"], s["name"]) for binding in bindings for s in binding["subjects"]]
    assert set(subjects) == {("ServiceAccount", NAMESPACE, "vcd-scheduler")}
    account = one(render(BASE), "ServiceAccount")
    assert account["metadata"]["name"] == pod_of(render(BASE))["spec"]["serviceAccountName"]
