"""Find the job or pod of a log that a name means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from vcd.eventlog import LogReader
from vcd.model.objects import Pod
from vcd.model.wording import did_you_mean, some
from vcd.text.job_names import UID, without_uid
from vcd.timetravel.history import History, object_in
from vcd.timetravel.query_errors import NotFound

Kind = Literal["job", "pod"]

NEAR = 3
"""Similar names that are suggested for an unknown one, at most."""
_NO_GROUP = "; for a Volcano Job look whether Volcano's controllers run: they make its PodGroup"


def named(history: History, kind: Kind | None, name: str, namespace: str = "default") -> tuple[Kind, str, str]:
    """Resolve a name to kind, key and the group's key; without a given kind, to a pod if there is one, else a job.
    Raises NotFound."""
    if "/" in name:
        namespace, _, name = name.partition("/")
    key = f"{namespace}/{name}"
    if kind == "pod" or (kind is None and _was_pod(history, key)):
        return "pod", key, group_of(history, key)
    try:
        group = _group_named(history, namespace, name)
    except NotFound as error:
        raise error if kind else NotFound(f"{error}; no pod {key} either") from error
    return "job", group, group


def _was_pod(history: History, key: str) -> bool:
    return key in history.oldest().tasks.row_of or next(history.reader.object_history("Pod", key), None) is not None


def group_of(history: History, key: str) -> str:
    """Return the key of a pod's last group; empty if it has none. Raises NotFound."""
    reader, oldest = history.reader, history.oldest()
    pod, seen = oldest.pod(key), key in oldest.tasks.row_of
    for logged in reader.object_history("Pod", key):
        seen, obj = True, object_in(logged.event)
        pod = obj if isinstance(obj, Pod) else pod
    if not seen:
        near = _nearest(key, keys_of(reader, "Pod").union(oldest.tasks.row_of))
        raise NotFound(f"event log {reader.path}: no pod {key} is in it{near}")
    return "" if pod is None else pod.group_key


def _group_named(history: History, namespace: str, name: str) -> str:
    """Return the key of the one group that a name means: its own, its Volcano Job's, or a unique prefix of its own."""
    reader, keys = history.reader, set(history.oldest().groups)
    exact = f"{namespace}/{name}"
    if exact in keys or next(reader.object_history("PodGroup", exact), None) is not None:
        return exact
    keys |= keys_of(reader, "PodGroup")
    begin_so = sorted(key for key in keys if key.startswith(exact))
    of_job = [key for key in begin_so if UID.fullmatch(key.removeprefix(exact))]
    found = of_job or begin_so
    if len(found) == 1:
        return found[0]
    where = f"event log {reader.path}:"
    if found:
        raise NotFound(f"{where} {name} may mean {some(found, 10)}; give more of the name")
    elsewhere = sorted(key for key in keys if key.partition("/")[2].startswith(name))
    hint = f"; there is {elsewhere[0]} (choose a namespace with -n)" if elsewhere else _nearest(exact, keys)
    raise NotFound(f"{where} no job {exact} is in it{hint or _NO_GROUP}")


def _nearest(key: str, keys: Iterable[str]) -> str:
    """Suggest names in the namespace, else keys in others; for a Volcano Job's group, the Job's name."""
    namespace, _, name = key.partition("/")
    there = sorted({without_uid(one) for one in keys})
    own = [one.partition("/")[2] for one in there if one.startswith(f"{namespace}/")]
    others = (one for one in there if not one.startswith(f"{namespace}/"))
    return did_you_mean(name, own, NEAR) or did_you_mean(key, others, NEAR)


def keys_of(reader: LogReader, kind: str) -> set[str]:
    """Return the keys of all objects of a kind in the log's events."""
    return {str(key) for _, _, _, of, key, _ in reader.cursor("columns") if of == kind}
