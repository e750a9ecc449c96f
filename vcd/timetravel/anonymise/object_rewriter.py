"""Rename objects, configurations and annotations: which of their texts are names, and which are read by plugins."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import yaml

from vcd.eventlog import LogError
from vcd.model import objects
from vcd.model.kinds import KINDS
from vcd.model.projection_codec import BadObject, as_plain, decode_payload, encode_payload
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.policy import METRICS, Policy, PolicyError
from vcd.scheduling.framework.registry import actions, plugins
from vcd.scheduling.topology.hypernode_members import MemberError, compile_pattern
from vcd.timetravel.anonymise.replacement_names import Words

_AMOUNTS = frozenset(
    field.encode_name
    for of in vars(objects).values()
    if isinstance(of, type) and issubclass(of, objects.Projected)
    for field in msgspec.structs.fields(of)
    if field.type in (objects.Quantities, objects.Quantities | None)
) | {"policies", "resReserved", "numares", "cpuDetail"}
"""Fields of quantities by resource, and of a node's CPU topology, which stay unchanged."""
_VOCABULARY = frozenset(
    (
        "operator", "effect", "phase", "status", "type", "protocol", "restartPolicy", "whenUnsatisfiable",
        "nodeAffinityPolicy", "nodeTaintsPolicy", "mode", "volumeMode", "accessModes", "volumeBindingMode",
        "preemptionPolicy", "scopes", "state", "dequeueStrategy", "reason", "creationTimestamp",
        "deletionTimestamp", "startTime", "lastTransitionTime", "timeAdded", "resourceVersion", "driver",
        "provisioner",
    )
)  # fmt: skip
"""Fields of words that Kubernetes and Volcano define, times, and the names of drivers."""
_KEYS = frozenset(("topologyKey", "topologyKeys", "matchLabelKeys", "mismatchLabelKeys", "schedulingGates"))
"""Fields that name labels, or gates."""
_LABEL_MAPS = frozenset(("matchLabels", "nodeSelector"))
_REQUIREMENTS = frozenset(("matchExpressions", "matchLabelExpressions", "taints", "tolerations"))
_NAMED_BY = {
    "nodeName": "node", "nominatedNodeName": "node", "queue": "queue", "parent": "queue", "uid": "uid",
    "namespace": "namespace", "namespaces": "namespace", "claimName": "claim", "volumeName": "volume",
    "priorityClassName": "priorityclass", "schedulerName": "scheduler", "transitionID": "uid",
    "minTaskMember": "task", "disruptedPods": "pod",
}  # fmt: skip
"""What the values of a field name; values of other fields are plain names."""
_KEPT_DOMAINS = ("kubernetes.io", "k8s.io", "volcano.sh")
_GROUPS = ("apps/", "batch/")
"""API groups of Kubernetes without a domain."""
_HARDWARE_DOMAINS = ("nvidia.com", "amd.com", "intel.com", "huawei.com", "volcano.sh/vgpu")
"""Domains of labels about a node's cards: plugins read their values."""
_WITHOUT_NAMES = [one for one in METRICS if one.kind != "str" or one.choices is not None]
"""Arguments of the metrics configuration that contain no names. Usage that was queried is in the log."""
_READ_BY_THE_CORE = (
    "scheduling.k8s.io/group-name", "pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node",
    "volume.beta.kubernetes.io/storage-class",
)  # fmt: skip
_PIECE = re.compile(r"[A-Za-z0-9_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff./-]*")
"""A word of a text: letters and digits of any script, and the punctuation of names."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


class Rewriter:
    """Replaces names in objects. While words are collected, it also collects which labels are read."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.collecting = True
        self._declared = frozenset(name for plugin in plugins().values() for name in plugin.keys)
        self._read = {*self._declared, *_READ_BY_THE_CORE}

    # --- objects ------------------------------------------------------------------------------------------------------

    def payload(self, kind: str, payload: bytes, messages: Callable[[str], str] = lambda _: "") -> bytes | None:
        """Return an object's payload with new names, or None if unreadable. ``messages`` maps condition messages."""
        try:
            plain = as_plain(decode_payload(kind, payload))
            self._note_composed_names(plain)
            changed = self._object(kind, plain, messages)
            if kind not in KINDS:
                return msgspec.msgpack.encode(changed, order="deterministic")
            return encode_payload(msgspec.convert(changed, KINDS[kind].type, strict=False))
        except (BadObject, msgspec.MsgspecError):
            return None

    def key(self, kind: str, key: str) -> str:
        """Return the key of an object with names replaced."""
        namespace, _, name = key.rpartition("/")
        if kind == "CSIDriver":
            return key
        named = self.words.named(name, kind.lower())
        return f"{self.words.named(namespace, 'namespace')}/{named}" if namespace else named

    def _object(self, kind: str, plain: dict[str, Any], messages: Callable[[str], str]) -> dict[str, Any]:
        found = {name: self._field(name, value, messages) for name, value in plain.items() if name != "metadata"}
        meta = dict(plain.get("metadata") or {})
        *_, meta["name"] = self.key(kind, meta.get("name", "")).rpartition("/")
        if meta.get("namespace"):
            meta["namespace"] = self.words.named(meta["namespace"], "namespace")
        parts = (("labels", self._labels), ("annotations", self._annotations), ("ownerReferences", self._owners))
        meta |= {part: renamed(meta[part]) for part, renamed in parts if meta.get(part)}
        if meta.get("uid"):
            meta["uid"] = self.words(meta["uid"], "uid")
        return {"metadata": meta, **found}

    def _owners(self, owners: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for owner in owners:
            version = owner.get("apiVersion", "")
            known = "/" not in version or version.startswith(_GROUPS) or _is_of(version, _KEPT_DOMAINS)
            changed = {**owner, "name": self.words(owner.get("name", ""), "owner")}
            if owner.get("uid"):
                changed["uid"] = self.words(owner["uid"], "uid")
            if not known:
                changed |= {"apiVersion": self.words(version, "group"), "kind": self.words(owner["kind"], "kind")}
            found.append(changed)
        return found

    def _labels(self, labels: dict[str, str]) -> dict[str, str]:
        read = {key: value for key, value in labels.items() if self.collecting or self._is_read(key)}
        return {self.label(key): self._value(key, value) for key, value in read.items()}

    def _is_read(self, key: str) -> bool:
        return key in self._read or _is_of(key, (*_KEPT_DOMAINS, *_HARDWARE_DOMAINS))

    def _annotations(self, annotations: dict[str, str]) -> dict[str, str]:
        read = {key: text for key, text in annotations.items() if key in self._read or _is_of(key, ("volcano.sh",))}
        return {self.label(key): self.text(text) for key, text in read.items()}

    def _note_composed_names(self, plain: dict[str, Any]) -> None:
        """Note the claims of ephemeral volumes, whose names combine pod and volume."""
        for volume in (plain.get("spec") or {}).get("volumes") or () if self.collecting else ():
            if isinstance(volume, dict) and "ephemeral" in volume:
                pod = plain["metadata"]["name"]
                self.words.made_of(f"{pod}-{volume['name']}", pod, volume["name"])

    def _field(self, name: str, value: Any, messages: Callable[[str], str]) -> Any:
        if value is None or isinstance(value, bool | int | float | bytes):
            return value
        if name in _VOCABULARY and not isinstance(value, dict):
            return value
        if name in _AMOUNTS:
            if isinstance(value, dict) and self.collecting:
                self.words.keep(value)
            return value
        if name == "message":
            return messages(value)
        if name in _KEYS:
            return [{**one, "name": self.label(one["name"])} for one in value] if name == "schedulingGates" else (
                self._labels_named(value)
            )  # fmt: skip
        if name in _LABEL_MAPS or (name == "selector" and _is_flat(value)):
            return {self._referred(key): self._value(key, text) for key, text in value.items()}
        if name in _REQUIREMENTS:
            return [self._requirement(one) for one in value]
        if name == "matchFields":
            return [{**one, "values": [self.words(text, "node") for text in one.get("values", ())]} for one in value]
        if name == "drivers":
            return [
                {**one, "nodeID": "", "topologyKeys": self._labels_named(one.get("topologyKeys", ()))} for one in value
            ]
        if isinstance(value, str):
            return self._image(value) if name == "image" else self.words(value, _NAMED_BY.get(name, "name"))
        if isinstance(value, dict):
            if name in _NAMED_BY:
                return {self.words(key, _NAMED_BY[name]): inner for key, inner in value.items()}
            return {key: self._field(key, inner, messages) for key, inner in value.items()}
        if name == "names":
            return [self._image(text) for text in value]
        if name == "members":
            value = [each for member in value for each in self._by_name(member)]
        return [self._field(name if isinstance(one, str) else "", one, messages) for one in value]

    def _by_name(self, member: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a member of a HyperNode that selects nodes by a regular expression as members by name: of all nodes of
        the log that match it. The expression would not match their new names."""
        expression = (member.get("selector") or {}).get("regexMatch")
        if expression is None or self.collecting:
            return [member]
        try:
            pattern = compile_pattern(expression.get("pattern", ""))
        except MemberError:
            return [{**member, "selector": {}}]
        nodes = sorted(filter(pattern.search, self.words.known_as("node")))
        return [{**member, "selector": {"exactMatch": {"name": node}}} for node in nodes]

    def _labels_named(self, value: Any) -> Any:
        return self._referred(value) if isinstance(value, str) else [self._referred(key) for key in value]

    def _requirement(self, one: dict[str, Any]) -> dict[str, Any]:
        found, key = dict(one), one.get("key", "")
        if "key" in one:
            found["key"] = self._referred(key)
        if "value" in one:
            found["value"] = self._value(key, one["value"])
        if "values" in one:
            found["values"] = [self._value(key, text) for text in one["values"]]
        return found

    def _referred(self, key: str) -> str:
        """Return the key of a label that a selector reads."""
        if self.collecting:
            self._read.add(key)
        return self.label(key)

    def label(self, key: str) -> str:
        """Return the key of a label, taint or gate."""
        stays = key in self._declared or _is_of(key, (*_KEPT_DOMAINS, *_HARDWARE_DOMAINS))
        return key if stays else self.words(key, "key")

    def _value(self, key: str, value: str) -> str:
        if _is_of(key, _HARDWARE_DOMAINS):
            if self.collecting:
                self.words.keep((value,))
            return value
        return self.words(value, "value")

    def _image(self, image: str) -> str:
        base, at, digest = image.partition("@")
        slash = base.rfind("/")
        colon = base.find(":", slash + 1)
        name, tag = (base, "") if colon < 0 else (base[:colon], base[colon + 1 :])
        found = self.words(name, "image") + (f":{self.words(tag, 'tag')}" if tag else "")
        return found + (f"@{self.words(digest, 'digest')}" if at else "")

    # --- texts --------------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return an annotation, or another text that plugins parse, with names replaced."""
        if text[:1] in ("{", "["):
            try:
                return json.dumps(self._json(json.loads(text)), separators=(",", ":"))
            except (ValueError, RecursionError):
                pass  # not JSON after all
        return _PIECE.sub(lambda found: self._piece(found[0]), text)

    def answer(self, answer: bytes) -> bytes:
        """Return an external answer with names replaced; empty if it is not JSON."""
        try:
            return msgspec.json.encode(self._json(msgspec.json.decode(answer)), order="deterministic")
        except (msgspec.MsgspecError, RecursionError):
            return b""

    def _json(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._piece(key): self._json(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._json(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value

    def _piece(self, piece: str) -> str:
        if "/" not in piece or self.words.knows(piece):
            return self.words(piece, "value")
        if _is_of(piece, (*_KEPT_DOMAINS, *_HARDWARE_DOMAINS)):
            return piece
        return "/".join(self.words(part, "value") for part in piece.split("/"))

    # --- configurations -----------------------------------------------------------------------------------------------

    def policy(self, text: str) -> Policy:
        """Return a configuration with names in its arguments replaced. Raises LogError if it cannot be read."""
        try:
            plain = yaml.safe_load(text) or {}
            declared = {name: kind.arguments for name, kind in plugins().items()}
            options = [one for tier in plain.get("tiers") or () for one in tier.get("plugins") or ()]
            self._rename_arguments(options, declared)
            declared = {name: kind.arguments for name, kind in actions().items()}
            self._rename_arguments(plain.get("configurations") or (), declared)
            if plain.get("metrics"):
                plain["metrics"] = self._argument(_read_of(plain["metrics"], _WITHOUT_NAMES))
            return read_policy(yaml.safe_dump(plain, sort_keys=False), logged=True)
        except (yaml.YAMLError, AttributeError, TypeError, PolicyError) as error:
            raise LogError(f"a configuration of the log cannot be written in other words: {error}") from error

    def _rename_arguments(self, given: Iterable[dict[str, Any]], declared: Mapping[str, Iterable[Argument]]) -> None:
        for one in given:
            if one.get("arguments"):
                one["arguments"] = self._argument(_read_of(one["arguments"], declared.get(one["name"], ())))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._argument(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._argument(inner) for inner in value]
        if not isinstance(value, str):
            return value
        pieces = _PIECE.findall(value)
        if self.collecting:
            self._read.update(pieces)
            return value
        value = _URL.sub("http://somewhere", value)
        return _PIECE.sub(lambda found: self._rename_if_known(found[0]), value)

    def _rename_if_known(self, piece: str) -> str:
        """Replace a word of a configuration if it names an object, a label or a label's value; other words are
        keywords."""
        return self.words(piece, "value") if self.words.knows(piece) else piece

    def settings(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the program's flags with names replaced."""
        found = dict(settings)
        for name, what in (("scheduler-name", "scheduler"), ("default-queue", "queue")):
            if name in found:
                found[name] = ",".join(self.words(one, what) for one in found[name].split(","))
        if found.get("node-selector"):
            pairs = [one.partition(":") for one in found["node-selector"].split(",")]
            found["node-selector"] = ",".join(f"{self._referred(k)}:{self._value(k, v)}" for k, _, v in pairs)
        return found


def _is_of(key: str, domains: Iterable[str]) -> bool:
    """Return whether a key belongs to one of some domains or their subdomains, or has one of some prefixes with a
    slash."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(
        key.startswith(one) if "/" in one else domain == one or domain.endswith(f".{one}") for one in domains
    )


def _read_of(given: dict[str, Any], declared: Iterable[Argument]) -> dict[str, Any]:
    """Return the declared arguments: no code reads others, and they may contain anything."""
    return {key: value for key, value in given.items() if any(_declares(one, key) for one in declared)}


def _declares(argument: Argument, key: str) -> bool:
    return argument.key == key or (argument.is_dynamic and argument.placed(key) is not None)


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
