"""vGPU: nodes' registered cards, pods' requests, and the annotations that carry assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from vcd.model.kinds import Kind
from vcd.model.objects import Container, Node, Object, PodSpec, Projected, Quantities
from vcd.model.quantity import QuantityError, parse_milli
from vcd.scheduling.plugins.deviceshare.shared_cards import (
    FULL,
    HAMI_CORE,
    MIG,
    Card,
    Cards,
    Geometry,
    Instance,
    Piece,
    Request,
)

REGISTER = "volcano.sh/node-vgpu-register"
MODE = "volcano.sh/vgpu-mode"
GROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"
USE_TYPE = "nvidia.com/use-gputype"
NO_TYPE = "nvidia.com/nouse-gputype"
USE_UUID = "volcano.sh/vgpu-use-gpuuuid"
NO_UUID = "volcano.sh/vgpu-nouse-gpuuuid"
ASSIGNED_IDS = "volcano.sh/vgpu-ids-new"
IDS_TO_ALLOCATE = "volcano.sh/devices-to-allocate"
ASSIGNED_NODE = "volcano.sh/vgpu-node"
ASSIGNED_TIME = "volcano.sh/vgpu-time"
BIND_TIME = "volcano.sh/bind-time"
BIND_PHASE = "volcano.sh/bind-phase"
ALLOCATING = "allocating"
NODE_LOCK = "hamivgpu"
"""The annotation with which vc-scheduler locks a node for one pod at a time."""
NVIDIA = "NVIDIA"

NO_CARDS = "node(s) had no vGPU cards registered"
BAD_REGISTER = f"node(s) had a {REGISTER} annotation that cannot be read; restart their vGPU device plugin"
_LARGEST = 2**31
_FIELDS = 6


class _Files(Projected, frozen=True):
    device_config: str = msgspec.field(name="device-config.yaml", default="")


class DeviceConfigMap(Object, frozen=True):
    """The ConfigMap with the device plugin's configuration; its other files are not read."""

    data: _Files = _Files()


CONFIG_MAP = Kind(
    "ConfigMap",
    "",
    "v1",
    "configmaps",
    True,
    DeviceConfigMap,
    namespace="<deviceshare.KnownGeometriesCMNamespace>",
    object="<deviceshare.KnownGeometriesCMName>",
)


class DeviceConfig(msgspec.Struct, frozen=True):
    """The relevant parts of the device plugin's configuration.

    These are names of resources, MB per unit of memory, and MIG geometries by words of a card's type. ``npus`` are the
    resources of Ascend's virtual NPUs.
    """

    count: str = "volcano.sh/vgpu-number"
    memory: str = "volcano.sh/vgpu-memory"
    percentage: str = "volcano.sh/vgpu-memory-percentage"
    cores: str = "volcano.sh/vgpu-cores"
    factor: int = 1
    geometries: tuple[tuple[tuple[str, ...], tuple[Geometry, ...]], ...] = ()
    npus: tuple[str, ...] = ("huawei.com/Ascend310P", "huawei.com/Ascend310P-memory")

    def geometries_of(self, card_type: str) -> tuple[Geometry, ...]:
        """Return the geometries of a type of card; empty if none is known."""
        for models, geometries in self.geometries:
            if any(model in card_type for model in models):
                return geometries
        return ()


@lru_cache(maxsize=4)
def device_config(text: str | None) -> DeviceConfig:
    """Parse a ``device-config.yaml``; missing or unreadable parts have defaults."""
    try:
        loaded = yaml.safe_load(text) if text else None
    except (yaml.YAMLError, ValueError, RecursionError):  # an impossible date, endless nesting
        loaded = None
    default = DeviceConfig()
    if not isinstance(loaded, dict):
        return default
    npus = tuple(_npu_resources(loaded.get("vnpus")))
    nvidia = loaded.get("nvidia")
    if not isinstance(nvidia, dict):
        return msgspec.structs.replace(default, npus=npus)
    factor = nvidia.get("gpuMemoryFactor")
    return DeviceConfig(
        str(nvidia.get("resourceCountName") or default.count),
        str(nvidia.get("resourceMemoryName") or default.memory),
        str(nvidia.get("resourceMemoryPercentageName") or default.percentage),
        str(nvidia.get("resourceCoreName") or default.cores),
        factor if isinstance(factor, int) and factor > 1 else 1,
        tuple(_known_geometries(nvidia.get("knownMigGeometries"))),
        npus,
    )


def _npu_resources(listed: Any) -> Iterable[str]:
    """Yield the resources of virtual NPUs in the section vnpus, which is a list or a mapping with one."""
    for entry in _mappings(listed.get("configs") if isinstance(listed, dict) else listed):
        for field in ("resourceName", "resourceMemoryName"):
            if isinstance(entry.get(field), str) and entry[field]:
                yield entry[field]


def _known_geometries(listed: Any) -> Iterable[tuple[tuple[str, ...], tuple[Geometry, ...]]]:
    for entry in _mappings(listed):
        models = entry.get("models")
        names = tuple(model for model in models if isinstance(model, str)) if isinstance(models, list) else ()
        geometries = [
            Geometry(str(cut.get("group", "")), tuple(_instances(cut.get("geometries"))))
            for cut in _mappings(entry.get("allowedGeometries"))
        ]
        if names and geometries:
            yield names, tuple(geometries)


def _instances(listed: Any) -> Iterable[Instance]:
    for entry in _mappings(listed):
        memory, count = entry.get("memory"), entry.get("count")
        if isinstance(memory, int) and isinstance(count, int) and 0 < memory < _LARGEST and 0 < count < 1000:
            yield Instance(str(entry.get("name", "")), memory, count)


def _mappings(listed: Any) -> list[dict[str, Any]]:
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


# --- nodes --------------------------------------------------------------------------------------------------------


def vgpu_cards(nodes: Sequence[Node], config: DeviceConfig) -> Cards:
    """Return the cards that the nodes' device plugins registered."""
    found, modes, problems = [], [], []
    for node in nodes:
        cards, mode, problem = _node_cards(node, config)
        found.append(cards)
        modes.append(mode)
        problems.append(problem)
    return Cards(found, modes, problems)


def _node_cards(node: Node, config: DeviceConfig) -> tuple[Sequence[Card], str, str]:
    text = node.metadata.annotations.get(REGISTER)
    if text is None or not _offers(node.status.allocatable, (config.count, config.memory, config.cores)):
        return (), "", NO_CARDS
    return _registered(text, config)


@lru_cache(maxsize=1 << 14)
def _registered(text: str, config: DeviceConfig) -> tuple[tuple[Card, ...], str, str]:
    """Return the cards, mode and problem of a register. Cached, because nodes change more often than their cards."""
    mode, cards = HAMI_CORE, []
    for entry in text.split(":"):
        fields = entry.strip().split(",")
        if len(fields) == 1:
            continue
        numbers = [_number(field) for field in fields[1:3]]
        if len(fields) < _FIELDS or not fields[0] or None in numbers:
            return (), "", BAD_REGISTER
        healthy = fields[4].lower() in ("true", "t", "1") and NVIDIA in fields[3]
        geometries = config.geometries_of(fields[3]) if fields[5] == MIG else ()
        mode = MIG if geometries else HAMI_CORE  # as in Volcano, the last card decides, including unknown models
        cards.append(Card(fields[0], numbers[1] or 0, numbers[0] or 0, fields[3], healthy, geometries))
    if not cards or len({card.uuid for card in cards}) < len(cards):
        return (), "", BAD_REGISTER
    return tuple(cards), mode, ""


def _offers(allocatable: Quantities, names: Sequence[str]) -> bool:
    try:
        return all(name in allocatable and parse_milli(allocatable[name]) > 0 for name in names)
    except QuantityError:
        return False


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 and int(text) < _LARGEST else None


# --- pods ---------------------------------------------------------------------------------------------------------


def vgpu_requests(spec: PodSpec, config: DeviceConfig) -> tuple[Request, ...] | str:
    """Return one request for each container that requests cards; a text states why they cannot be understood."""
    found = []
    for container in spec.containers:
        if _stated(container, config.count) is None and _stated(container, config.memory) is None:
            continue
        try:
            count = _whole(container, config.count, 1)
            memory = _whole(container, config.memory, 0)
            percent = _whole(container, config.percentage, None)
            cores = _whole(container, config.cores, 0) or 0
        except QuantityError as error:
            return f"container {container.name}: {error}"
        if percent is None and not memory:
            percent = FULL
        if cores > FULL or (percent or 0) > FULL:
            name = config.cores if cores > FULL else config.percentage
            return f"container {container.name}: {name} is more than {FULL} percent of a card; ask for at most {FULL}"
        if count:
            found.append(Request(count, memory or 0, percent, cores, cores == FULL))
    return tuple(found)


def _stated(container: Container, name: str) -> str | int | float | None:
    """Return a resource's limit, or else its request."""
    return container.resources.limits.get(name, container.resources.requests.get(name))


def _whole(container: Container, name: str, default: int | None) -> int | None:
    text = _stated(container, name)
    if text is None:
        return default
    try:
        milli = parse_milli(text)
    except QuantityError as error:
        raise QuantityError(f"{name}: {error}") from error
    if milli % 1000 or milli // 1000 >= _LARGEST:
        raise QuantityError(f"{name}: {text} must be a whole number below 2^31")
    return milli // 1000


def words(text: str | None) -> tuple[str, ...]:
    """Split a list at commas, and drop blanks."""
    return tuple(word for word in (part.strip() for part in (text or "").split(",")) if word)


# --- annotations of assignments -----------------------------------------------------------------------------------


def assigned(pieces: Sequence[Piece], containers: int, node: str, time: int) -> dict[str, str]:
    """Return the annotations from which the device plugin reads the cards of a pod; ``time`` in seconds."""
    groups = [
        "".join(f"{piece.identity},{NVIDIA},{piece.memory},{piece.cores}:" for piece in pieces if piece.container == i)
        for i in range(containers)
    ]
    return {
        ASSIGNED_NODE: node,
        ASSIGNED_TIME: str(time),
        ASSIGNED_IDS: ";".join(groups),
        IDS_TO_ALLOCATE: ";".join(groups),
        BIND_PHASE: ALLOCATING,
        BIND_TIME: str(time),
    }


def shares_in(text: str, places: Mapping[str, int], cards: Sequence[Card], factor: int) -> list[Piece]:
    """Return the shares in a pod's annotation, without cards that the node does not have."""
    found = []
    for container, identity, uuid, position, memory, cores in _shares(text):
        place = places.get(uuid)
        if place is None:
            continue
        slot, takes = _slot(cards[place], position, memory, factor) if position else (None, memory)
        found.append(Piece(container, place, identity, memory, cores, takes, slot))
    return found


@lru_cache(maxsize=1 << 16)
def _shares(text: str) -> tuple[tuple[int, str, str, str, int, int], ...]:
    """Parse container, identity, UUID, MIG position, memory and cores of each share; skip unreadable ones."""
    found = []
    for container, group in enumerate(text.split(";")):
        for entry in group.split(":"):
            fields = entry.split(",")
            if len(fields) < 4:
                continue
            uuid, _, position = fields[0].partition("[")
            memory, cores = _number(fields[2]), _number(fields[3])
            if memory is not None and cores is not None:
                found.append((container, fields[0], uuid, position, memory, cores))
    return tuple(found)


def _slot(card: Card, text: str, memory: int, factor: int) -> tuple[tuple[int, int] | None, int]:
    """Return the position that ``group-position]`` names, and the memory of the instance there."""
    group, _, number = text.rstrip("]").rpartition("-")
    position = _number(number)
    for index, geometry in enumerate(card.geometries):
        if geometry.group == group and position is not None:
            left = position
            for instance in geometry.instances:
                if left < instance.number:
                    return (index, position), instance.memory // factor
                left -= instance.number
    return None, memory
