"""Volcano Jobs: creates their PodGroup, and their pods once the group is admitted, and updates their phase."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from vcd.embedded.cluster_clock import parse_timestamp
from vcd.embedded.controllers.controller_base import (
    COMMANDS,
    DELETED,
    JOBS,
    PODGROUPS,
    PODS,
    Controller,
    Key,
    Manager,
    Obj,
    annotations_of,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
)
from vcd.embedded.controllers.jobpods import (
    OUT_OF_SYNC,
    build_claim,
    build_pod,
    claim_name,
    count_pods,
    is_out_of_sync,
    min_resources,
)
from vcd.embedded.controllers.jobstate import FINISHED, KEEP_ENDED, SYNC, JobEvent, PodWork, Step, reaction, step
from vcd.embedded.controllers.pod_properties import is_ready, phase_of
from vcd.embedded.resource_types import PRIORITY_CLASSES
from vcd.embedded.status_errors import StatusError
from vcd.model.controllers import (
    DEFAULT_MAX_RETRY,
    JOB_NAME,
    JOB_NAMESPACE,
    JOB_VERSION,
    PARTITION,
    TASK_SPEC,
    controller_reference,
    group_name,
    group_of_job,
    group_wishes,
    pod_name,
    tasks_of,
    with_defaults,
)
from vcd.model.jobspec import duration_seconds, problems

API_VERSION: Final = "batch.volcano.sh/v1alpha1"
SERVICES: Final = "services"
CLAIMS: Final = "persistentvolumeclaims"
CLAIM_CHECK_SECONDS: Final = 10.0
_COMMAND: Final = "command"


class JobController(Controller):
    """Controls Volcano Jobs as Volcano's job controller does.

    It supports the job plugins ``env`` (the task index as variable) and ``svc`` (host names and the headless Service).
    Nothing on the embedded cluster would use what the others add (keys, hosts files, ports, a NetworkPolicy). An
    invalid job stays Pending with a message.
    """

    name: ClassVar[str] = "vc-job-controller"
    resources = (JOBS, PODS, PODGROUPS, COMMANDS)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._phases: dict[str, str] = {}
        self._group_phases: dict[str, str] = {}
        self._events: dict[Key, list[JobEvent]] = {}

    # --- events ---

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Note a change of a job, of a pod or PodGroup that a job controls, or a command for a job."""
        if resource == JOBS:
            super().observe(event, resource, obj)
        elif resource == COMMANDS:
            if event != DELETED and (obj.get("target") or {}).get("kind") == "Job":
                self.enqueue((_COMMAND, *key_of(obj)))
        else:
            owner = controller_of(obj)
            if owner and owner["kind"] == "Job" and owner["apiVersion"] == API_VERSION:
                key = (obj["metadata"]["namespace"], owner["name"])
                kind = self._pod_event(event, obj) if resource == PODS else self._group_event(event, obj)
                if kind:
                    self._events.setdefault(key, []).append(_event_of(kind, obj, owner["uid"]))
                self.enqueue(key)

    def _pod_event(self, event: str, pod: Obj) -> str:
        """Return the policy event that a pod's change causes; empty for none."""
        uid, phase = pod["metadata"]["uid"], phase_of(pod)
        if event == DELETED:
            self._phases.pop(uid, None)
            return "" if is_out_of_sync(pod) else "PodEvicted"
        before = self._phases.get(uid, "")
        self._phases[uid] = phase
        if is_out_of_sync(pod):
            return ""
        if phase == before:
            return "TaskFailed" if phase in ("Pending", "Running") and self._restarted_too_often(pod) else ""
        if phase == "Succeeded":
            return "TaskCompleted" if self._task_completed(pod) else ""
        return {"Failed": "PodFailed", "Pending": "PodPending"}.get(phase, "")

    def _group_event(self, event: str, group: Obj) -> str:
        uid, phase = group["metadata"]["uid"], (group.get("status") or {}).get("phase") or ""
        before = self._group_phases.pop(uid, "")
        if event != DELETED:
            self._group_phases[uid] = phase
        return "Unknown" if phase == "Unknown" and before != phase and event != DELETED else ""

    def _siblings(self, pod: Obj) -> tuple[Obj | None, list[Obj]]:
        """Return the task of a pod, and all pods of that task."""
        owner = controller_of(pod)
        assert owner is not None
        job = self.find(JOBS, pod["metadata"]["namespace"], owner["name"])
        name = annotations_of(pod).get(TASK_SPEC)
        task = next((each for each in tasks_of(job) if each.get("name") == name), None) if job else None
        pods = self.pods_by_controller.of(owner["uid"])
        return task, [each for each in pods if annotations_of(each).get(TASK_SPEC) == name]

    def _task_completed(self, pod: Obj) -> bool:
        task, pods = self._siblings(pod)
        replicas = (task or {}).get("replicas", 0)
        return bool(0 < replicas <= sum(phase_of(each) == "Succeeded" for each in pods))

    def _restarted_too_often(self, pod: Obj) -> bool:
        if not any(each.get("restartCount") for each in (pod.get("status") or {}).get("containerStatuses") or ()):
            return False
        task, pods = self._siblings(pod)
        limit = (task or {}).get("maxRetry") or DEFAULT_MAX_RETRY
        restarts = sum(
            each.get("restartCount", 0)
            for one in pods
            if phase_of(one) in ("Pending", "Running")
            for field in ("containerStatuses", "initContainerStatuses")
            for each in (one.get("status") or {}).get(field) or ()
        )
        return bool(task) and limit != -1 and restarts >= limit

    # --- actions ---

    def reconcile(self, key: Key) -> None:
        """Carry out the policies' actions for noted events, then create and delete pods as the job requires."""
        if key[0] == _COMMAND and len(key) == 3:
            self._take_command(key[1:])
            return
        job = self._job(key)
        events = self._events.pop(key, [])
        if job is None or is_deleting(job) or self._refused(job):
            return
        for event in events:
            action, timeout = reaction(job, event)
            if action == SYNC:
                continue
            if timeout is not None and not event.action:
                self._later(key, event, action, duration_seconds(timeout))
                continue
            self._execute(job, action, event)
            job = self._job(key)
            if job is None:
                return
        self._execute(job, SYNC, None)
        self._expire(self._job(key))

    def _job(self, key: Key) -> Obj | None:
        job = self.find(JOBS, *key)
        return None if job is None else with_defaults(job)

    def _take_command(self, key: Key) -> None:
        command = self.find(COMMANDS, *key)
        if command is None:
            return
        self.remove(COMMANDS, command)
        job_key = (key[0], command["target"]["name"])
        job = self._job(job_key)
        if job is not None:
            action = command.get("action") or SYNC
            self.manager.events.record(self.name, job, "Normal", "CommandIssued", f"Start to execute command {action}")
            self._events.setdefault(job_key, []).append(JobEvent("CommandIssued", action=action))
            self.enqueue(job_key)

    def _refused(self, job: Obj) -> bool:
        """Return whether the job is invalid, and state the reason in its status and an Event."""
        message = "; ".join(problems(job))
        status = job.get("status") or {}
        if message and (status.get("state") or {}).get("message") != message:
            now = self.store.now
            state = {"phase": "Pending", "reason": "Unsupported", "message": message, "lastTransitionTime": now}
            self.write_status(JOBS, self.store.get(JOBS, *key_of(job)), {**status, "state": state})
            self.manager.events.record(self.name, job, "Warning", "Unsupported", message)
        return bool(message)

    def _later(self, key: Key, event: JobEvent, action: str, delay: float) -> None:
        """Take the action after the policy's timeout, unless its cause has ended by then."""

        def due() -> None:
            pod = self.find(PODS, key[0], event.pod) if event.pod else None
            phase = phase_of(pod) if pod else ""
            same = pod is not None and pod["metadata"]["uid"] == event.pod_uid
            if event.kind == "PodPending" and not (same and phase == "Pending"):
                return
            if event.kind in ("PodFailed", "PodEvicted") and phase == "Running":
                return
            self._events.setdefault(key, []).append(replace(event, exit_code=0, action=action))
            self.enqueue(key)

        self.clock.call_later(delay, due)

    def _execute(self, job: Obj, action: str, event: JobEvent | None) -> None:
        phase = ((job.get("status") or {}).get("state") or {}).get("phase") or ""
        todo = step(phase, action)
        if action != SYNC:
            self.manager.events.record(self.name, job, "Normal", "ExecuteAction", f"Start to execute action {action} ")
        if todo.work is PodWork.SYNC:
            # A job that is out of retries fails now; it must not get a new group first.
            if phase != "Restarting" or job["status"].get("retryCount", 0) < job["spec"]["maxRetry"]:
                job = self._sync(job)
        else:
            targets = None if todo.work is PodWork.KILL else self._targets(job, action, event)
            job = self._kill(job, todo, targets)
        self._write(job, todo)
        if todo.work is PodWork.KILL:
            self.remove_group(job["metadata"]["namespace"], group_name(job))

    def _own(self, job: Obj) -> list[Obj]:
        return self.pods_by_controller.of(job["metadata"]["uid"])

    def _targets(self, job: Obj, action: str, event: JobEvent | None) -> list[Obj]:
        if event is None:
            return []
        pods = [pod for pod in self._own(job) if annotations_of(pod).get(TASK_SPEC) == event.task]
        if action == "RestartPod":
            return [pod for pod in pods if pod["metadata"]["name"] == event.pod]
        if action == "RestartPartition":
            return [pod for pod in pods if labels_of(pod).get(PARTITION, "") == event.partition]
        return pods

    def _kill(self, job: Obj, todo: Step, targets: list[Obj] | None) -> Obj:
        """Delete the targets, or (None) all pods that are not in a retained phase, with a new version of the job."""
        status = dict(job.get("status") or {})
        if targets is None:
            last = status.get("retryCount", 0) >= job["spec"]["maxRetry"] - 1
            keep = KEEP_ENDED if last else todo.keep
            targets = [pod for pod in self._own(job) if phase_of(pod) not in keep]
            targets = [pod for pod in targets if not is_deleting(pod)]
            if targets or todo.retries:
                status["version"] = status.get("version", 0) + 1
        for pod in targets:
            self._delete_silently(pod)
        return {**job, "status": status}

    def _delete_silently(self, pod: Obj) -> None:
        """Delete a pod, marked so that its end causes no policy event."""
        if is_deleting(pod):
            return
        if not is_out_of_sync(pod):
            namespace, name = key_of(pod)
            patch = {"metadata": {"annotations": {OUT_OF_SYNC: "true"}}}
            pod = self.store.patch(PODS, namespace, name, patch)
        self.remove(PODS, pod)

    def _sync(self, job: Obj) -> Obj:
        """Create the PodGroup, and the pods once it is admitted. Return the job, with a status if it had none."""
        if not ((job.get("status") or {}).get("state") or {}).get("phase"):
            job = self._initial(job)
        if "svc" in (job["spec"].get("plugins") or {}):
            self._ensure_service(job)
        if not self._ensure_claims(job):
            return job
        group = self._ensure_group(job)
        if ((group.get("status") or {}).get("phase") or "Pending") == "Pending":
            return job
        pods = {pod["metadata"]["name"]: pod for pod in self._own(job)}
        for task in tasks_of(job):
            self._sync_task(job, task, pods)
        for pod in pods.values():
            self._delete_silently(pod)
        return job

    def _sync_task(self, job: Obj, task: Obj, pods: dict[str, Obj]) -> None:
        """Create the task's missing pods, and remove the expected ones from ``pods``."""
        ready = self._may_start(job, task)
        for index in range(task["replicas"]):
            name = pod_name(job, task["name"], index)
            if name in pods:
                if not is_out_of_sync(pods[name]):
                    del pods[name]
            elif ready:
                self._create_pod(job, build_pod(job, task, index))

    def _create_pod(self, job: Obj, pod: Obj) -> None:
        try:
            self.store.create(PODS, pod)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return  # another owner's pod, or a terminating one, whose deletion enqueues the job again
            message = f"Error creating pods: failed to create pod {pod['metadata']['name']}, err: {error.message}"
            self.manager.events.record(self.name, job, "Warning", "FailedCreate", message)
            raise

    def _may_start(self, job: Obj, task: Obj) -> bool:
        """Return whether the tasks that this one depends on have their minimum: one of them for ``any``, else all."""
        depends = task.get("dependsOn") or {}
        names = depends.get("name") or []
        reached = [self._is_reached(job, name) for name in names]
        if len(names) > 1 and depends.get("iteration") == "any":
            return any(reached)
        return all(reached)

    def _is_reached(self, job: Obj, name: str) -> bool:
        task = next(each for each in tasks_of(job) if each["name"] == name)
        pods = [pod for pod in self._own(job) if annotations_of(pod).get(TASK_SPEC) == name]
        up = sum(phase_of(pod) == "Succeeded" or (phase_of(pod) == "Running" and is_ready(pod)) for pod in pods)
        return up >= int(task["minAvailable"])

    def _initial(self, job: Obj) -> Obj:
        now = self.store.now
        status = {
            **count_pods(job, ()),
            "state": {"phase": "Pending", "lastTransitionTime": now},
            "conditions": [{"status": "Pending", "lastTransitionTime": now}],
        }
        return {**job, "status": status}

    def _ensure_group(self, job: Obj) -> Obj:
        name = group_name(job)
        namespace = job["metadata"]["namespace"]
        group = self.find(PODGROUPS, namespace, name)
        if group is None:
            return self.store.create(PODGROUPS, group_of_job(job, min_resources(job, self._priority_of)))
        wanted = {**group["spec"], **group_wishes(job, min_resources(job, self._priority_of))}
        if wanted != group["spec"]:
            return self.store.update(PODGROUPS, {**group, "spec": wanted})
        return group

    def _ensure_claims(self, job: Obj) -> bool:
        """Create the claims of the job's own volumes. Return whether all claims that it names exist."""
        namespace = job["metadata"]["namespace"]
        for volume in job["spec"].get("volumes") or []:
            name = claim_name(job, volume)
            if self.find(CLAIMS, namespace, name) is not None:
                continue
            if not volume.get("volumeClaim"):
                message = f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
                self.manager.events.record(self.name, job, "Warning", "PVCError", message)
                self.enqueue_at(key_of(job), self.clock.now() + CLAIM_CHECK_SECONDS, background=True)
                return False
            self.store.create(CLAIMS, build_claim(job, volume))
        return True

    def _ensure_service(self, job: Obj) -> None:
        namespace, name = key_of(job)
        if self.find(SERVICES, namespace, name) is None:
            self.store.create(
                SERVICES,
                {
                    "metadata": {"namespace": namespace, "name": name, "ownerReferences": [controller_reference(job)]},
                    "spec": {"clusterIP": "None", "selector": {JOB_NAME: name, JOB_NAMESPACE: namespace}},
                },
            )

    def _priority_of(self, name: str) -> int:
        found = self.find(PRIORITY_CLASSES, "", name) if name else None
        return int(found["value"]) if found else 0

    def _write(self, job: Obj, todo: Step) -> None:
        """Write the status: new counts and the resulting phase."""
        fresh = self.store.get(JOBS, *key_of(job))
        status = {**(job.get("status") or {}), **count_pods(job, self._own(job))}
        before = (status.get("state") or {}).get("phase") or "Pending"
        if todo.retries:
            status["retryCount"] = status.get("retryCount", 0) + 1
        phase = todo.next_phase(job, status)
        if phase != before:
            now = self.store.now
            status["state"] = {"phase": phase, "lastTransitionTime": now}
            others = [each for each in status.get("conditions") or () if each["status"] != phase]
            status["conditions"] = [*others, {"status": phase, "lastTransitionTime": now}]
            if phase in FINISHED:
                lasted = self.clock.now() - parse_timestamp(fresh["metadata"]["creationTimestamp"])
                status["runningDuration"] = f"{int(lasted)}s"
        self.write_status(JOBS, fresh, {name: value for name, value in status.items() if value not in (0, {})})

    def _expire(self, job: Obj | None) -> None:
        """Delete a finished job and its objects after its time to live."""
        if job is None:
            return
        status = job.get("status") or {}
        state = status.get("state") or {}
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or state.get("phase") not in FINISHED:
            return
        due = parse_timestamp(state["lastTransitionTime"]) + ttl
        if due <= self.clock.now():
            self.remove(JOBS, job, propagation="Foreground")
        else:
            self.enqueue_at(key_of(job), due)


def _event_of(kind: str, obj: Obj, job_uid: str) -> JobEvent:
    if kind == "Unknown":
        return JobEvent(kind, job_uid=job_uid)
    statuses = (obj.get("status") or {}).get("containerStatuses") or [{}]
    ended = (statuses[0].get("state") or {}).get("terminated") or {}
    version = annotations_of(obj).get(JOB_VERSION, "0")
    return JobEvent(
        kind=kind,
        task=annotations_of(obj).get(TASK_SPEC, ""),
        pod=obj["metadata"]["name"],
        pod_uid=obj["metadata"]["uid"],
        partition=labels_of(obj).get(PARTITION, ""),
        version=int(version) if version.isdigit() else 0,
        exit_code=ended.get("exitCode", 0) if kind == "PodFailed" else 0,
        job_uid=job_uid,
    )
