"""The actions enqueue, allocate and backfill."""

from __future__ import annotations

from tests.reference.evictions import misses
from tests.reference.idle import unpipeline_idle
from tests.reference.model import ALLOCATED, Job, Node, Queue, Task
from tests.reference.session import PredicateFailure, Session, Statement


def enqueue(session: Session) -> None:
    """Admit pending groups, queue by queue, job by job."""
    jobs = [job for _, job in sorted(session.cluster.jobs.items())]
    waiting = {name: [j for j in jobs if j.queue == name and j.is_pending] for name in session.cluster.queues}
    queues = [queue for _, queue in sorted(session.cluster.queues.items()) if any(j.queue == queue.name for j in jobs)]
    while queues:
        queue = _pop_queue(session, queues)
        if not waiting[queue.name]:
            continue
        job = _pop_job(session, waiting[queue.name])
        if session.pains and not queue.open:
            job.notes["gate"] = {"enqueue": ["queue is not open"]}
        elif job.min_resources is None or session.enqueueable(job):
            for function in session.functions("jobEnqueued"):
                function(job)
            job.phase = "Inqueue"
        queues.append(queue)


def allocate(session: Session) -> None:
    """Place what asks for resources, one job of one queue at a time."""
    unpipeline_idle(session, lambda _: True)
    work: dict[str, list[Task]] = {}
    waiting: dict[str, list[Job]] = {}
    for _, job in sorted(session.cluster.jobs.items()):
        if job.is_pending:
            if "enqueue" in session.configuration.actions:
                continue
            if session.pains and not session.cluster.queues[job.queue].open:
                continue
            job.phase = "Inqueue"
        if (reason := session.why_invalid(job)) is not None:
            job.notes["invalid"] = reason
            continue
        pending = job.having("Pending")
        tasks = [t for t in pending if not (t.gated and not t.gated_by_queue_only) and not t.request.is_empty()]
        if tasks:
            work[job.key] = session.tasks_in_order(tasks)
            waiting.setdefault(job.queue, []).append(job)
    queues = [session.cluster.queues[name] for name in sorted(waiting)]
    everybody = {name: list(jobs) for name, jobs in waiting.items()}
    if session.pains:
        _place_nominated(session, queues, waiting, work)
    _in_turn(session, queues, waiting, work, note=True)
    if session.pains:
        _lend(session)
    for lends in (False, True) if session.pains else ():
        _second_rounds(session, everybody, lends)


def _second_rounds(session: Session, everybody: dict[str, list[Job]], lends: bool) -> None:
    """[differs] If nothing was placed, jobs with roles that failed are tried once more, then beyond their share."""
    if any(job.having("Allocated", "Pipelined", "Binding") for job in session.cluster.jobs.values()):
        return
    for function in session.functions("lend", "allocatable") if lends else ():
        function(True)
    for name, jobs in everybody.items():
        for job in session.jobs_in_order([job for job in jobs if job.failed_roles]):
            if not session.overused(session.cluster.queues[name]):
                _second_round(session, session.cluster.queues[name], job)
    for function in session.functions("lend", "allocatable") if lends else ():
        function(False)


def _in_turn(
    session: Session, queues: list[Queue], waiting: dict[str, list[Job]], work: dict[str, list[Task]], note: bool
) -> None:
    while queues:
        queue = _pop_queue(session, queues)
        if session.overused(queue):
            for job in waiting[queue.name] if note else ():
                job.notes.setdefault("queue", "overused")
            continue
        if not waiting[queue.name]:
            continue
        job = _pop_job(session, waiting[queue.name])
        statement = _allocate_job(session, queue, job, work[job.key])
        if statement is not None and session.job_ready(job):
            statement.commit()
            if work[job.key]:
                waiting[queue.name].append(job)
        queues.append(queue)


def _lend(session: Session) -> None:
    """[differs] Once every queue has its share, jobs that only their queue keeps from what is left get it."""
    answers = [function(True) for function in session.functions("lend", "allocatable")]
    if any(answers):
        work: dict[str, list[Task]] = {}
        waiting: dict[str, list[Job]] = {}
        before: dict[str, set[str]] = {}
        for _, job in sorted(session.cluster.jobs.items()):
            tasks = [t for t in job.having("Pending") if not t.gated and not t.request.is_empty()]
            if job.is_pending or "queue" not in job.notes or not tasks or session.why_invalid(job) is not None:
                continue
            before[job.key] = set(job.failed_roles)
            job.failed_roles.clear()
            work[job.key] = session.tasks_in_order(tasks)
            waiting.setdefault(job.queue, []).append(job)
        _in_turn(session, [session.cluster.queues[name] for name in sorted(waiting)], waiting, work, note=False)
        for key, roles in before.items():
            session.cluster.jobs[key].failed_roles |= roles
    for function in session.functions("lend", "allocatable"):
        function(False)


def _second_round(session: Session, queue: Queue, job: Job) -> None:
    """Try what was passed over because of another task, roles that miss their minimum first, unless one of the
    same kind found no node though nothing of its job was in the way."""
    statement = Statement(session)
    tasks = [t for t in job.having("Pending") if not t.request.is_empty() and not t.gated]
    if all((session.kind(t), t.role) == (session.kind(tasks[0]), tasks[0].role) for t in tasks):
        return
    tasks = [t for t in session.tasks_in_order(tasks) if session.kind(t) not in job.failed_kinds]
    for task in sorted(tasks, key=lambda t: not misses(job, t.role)):
        if session.allocatable(queue, task) and _try(session, job, task, statement) and session.job_ready(job):
            statement.commit()
            statement = Statement(session)
    if not session.job_pipelined(job):
        statement.discard()


def _place_nominated(
    session: Session, queues: list[Queue], waiting: dict[str, list[Job]], work: dict[str, list[Task]]
) -> None:
    """Jobs with a task that is nominated to a node which takes it come first, these tasks before their others."""

    def nominated(task: Task) -> bool:
        name = (task.pod.get("status") or {}).get("nominatedNodeName") or ""
        if name not in session.cluster.nodes or task.gated or task.best_effort or task.status != "Pending":
            return False
        try:
            session.pre_predicate(task)
        except PredicateFailure:
            return False
        return bool(session.feasible(task, [session.cluster.nodes[name]])[0])

    chosen = {
        queue.name: [job for job in waiting[queue.name] if any(map(nominated, job.having("Pending")))]
        for queue in queues
    }
    for queue in queues:
        for job in session.jobs_in_order(chosen[queue.name]):
            for other in session.jobs_in_order(waiting[queue.name]):
                named = [task for task in job.having("Pending") if nominated(task)]
                if named and _outranks(session, other, job, named):
                    _place_whole(session, queue, other, work)
                    waiting[queue.name] = [each for each in waiting[queue.name] if each is not other or work[each.key]]
            if not any(map(nominated, job.having("Pending"))):
                continue  # those before it took the room
            tasks = work[job.key] = sorted(work[job.key], key=lambda task: not nominated(task))
            goes_on = True
            while goes_on and not session.overused(queue):
                statement = _allocate_job(session, queue, job, tasks)
                goes_on = statement is not None and session.job_ready(job)
                if statement is not None and goes_on:
                    statement.commit()
                goes_on = goes_on and any(map(nominated, tasks))
            if not tasks:
                waiting[queue.name].remove(job)


def _outranks(session: Session, other: Job, job: Job, nominated: list[Task]) -> bool:
    """Whether another job is more urgent, and has no room but where tasks of a job are nominated to; or has room that
    these would take while their own is still being freed."""
    if other.priority <= job.priority or session.jobs_in_order([other, job])[0] is job:
        return False
    names = [task.pod["status"]["nominatedNodeName"] for task in nominated]
    moves = any(
        not task.request.fits(session.cluster.nodes[name].idle) and _elsewhere(session, task, [name]) > 0
        for task, name in zip(nominated, names, strict=True)
    )
    tasks = [task for task in other.having("Pending") if not (task.gated or task.best_effort)]
    for task in tasks:
        same = [each for each in tasks if each.spec == task.spec]
        could = any(task.request.fits(session.cluster.nodes[name].future_idle) for name in names)
        copies = _elsewhere(session, task, names)
        if (moves and copies > 0) or (could and len(same) > copies):
            return True
    return False


def _elsewhere(session: Session, task: Task, names: list[str]) -> int:
    """How many tasks like one have room now on other nodes than these."""
    return _copies(session, task, [node for node in session.node_order if node.name not in names])


def _copies(session: Session, task: Task, nodes: list[Node]) -> int:
    """How many tasks like one have room now on some nodes."""
    try:
        session.pre_predicate(task)
    except PredicateFailure:
        return 10**9
    count = 0
    for node in session.feasible(task, nodes)[0]:
        idle = node.idle
        while task.request.fits(idle):
            idle, count = idle.sub(task.request), count + 1
    return count


def _place_whole(session: Session, queue: Queue, job: Job, work: dict[str, list[Task]]) -> None:
    """Give a job turn after turn until nothing of it can be placed any more."""
    while work[job.key] and not session.overused(queue):
        statement = _allocate_job(session, queue, job, work[job.key])
        if statement is None or not session.job_ready(job):
            break
        statement.commit()


def backfill(session: Session) -> None:
    """Place tasks that ask for nothing, at once, wherever they may go."""
    unpipeline_idle(session, lambda task: task.best_effort)
    tasks: dict[str, list[Task]] = {}
    waiting: dict[str, list[Job]] = {}
    for _, job in sorted(session.cluster.jobs.items()):
        if job.is_pending or session.why_invalid(job) is not None:
            continue
        chosen = [t for t in job.having("Pending") if t.best_effort and not t.gated]
        if chosen and session.cluster.queues[job.queue].open:
            tasks[job.key] = session.tasks_in_order(chosen)
            waiting.setdefault(job.queue, []).append(job)
    queues = session.queues_in_order([session.cluster.queues[name] for name in sorted(waiting)])
    ordered = [job for queue in queues for job in session.jobs_in_order(waiting[queue.name])]
    for job in ordered:
        held: list[Task] = []
        for task in tasks[job.key]:
            if not _backfill(session, job, task):
                continue
            held.append(task)
            if session.job_ready(job):
                for ready in job.having("Allocated"):
                    session.bind(ready)
                held = []
        if session.pains and not session.job_pipelined(job):
            for task in reversed(held):
                session.displace(task)


def _backfill(session: Session, job: Job, task: Task) -> bool:
    """Place a task where there is room now; whether there is."""
    if session.pains and not session.allocatable(session.cluster.queues[job.queue], task):
        job.notes.setdefault("queue", "no quota left")
        return False
    try:
        session.pre_predicate(task)
    except PredicateFailure as failure:
        job.fit_errors[task.key] = {str(failure): len(session.node_order)}
        return False
    nodes, reasons = session.feasible(task, session.node_order, need_idle=True)
    if not nodes:
        job.fit_errors[task.key] = reasons
        return False
    return session.place(task, session.best(task, nodes), "Allocated")


def _allocate_job(session: Session, queue: Queue, job: Job, tasks: list[Task]) -> Statement | None:
    """Place tasks until the job is ready; the statement is kept when it is, or when it will be once room is free."""
    statement = Statement(session)
    while tasks:
        task = tasks.pop(0)
        if not session.allocatable(queue, task):
            job.notes.setdefault("queue", "no quota left" if queue.open else "not open")
            continue
        if task.gated:
            continue
        if task.role and task.role in job.failed_roles:
            job.fit_errors[task.key] = {f"task {task.role} failed before": len(session.node_order)}
            continue
        if not _try(session, job, task, statement):
            job.failed_roles.add(task.role)
            if _goes_on(job):
                continue
            break
        if session.job_ready(job):
            break
    if session.job_ready(job) or session.job_pipelined(job):
        return statement
    statement.discard()
    return None


def _try(session: Session, job: Job, task: Task, statement: Statement) -> bool:
    """Place a task on its best node, now or once it has room; whether there is one, though the placement be refused."""
    nodes, reasons = _candidates(session, task)
    if not nodes:
        job.fit_errors[task.key] = reasons
        if not statement.steps:
            job.failed_kinds.append(session.kind(task))
        return False
    idle = [node for node in nodes if task.request.fits(node.idle)]
    if idle:
        statement.allocate(task, session.best(task, idle))
    else:
        statement.pipeline(task, session.best(task, nodes))
    return True


def _candidates(session: Session, task: Task) -> tuple[list[Node], dict[str, int]]:
    """Feasible nodes; the one that an earlier preemption nominated goes first, but behind others that are idle now."""
    try:
        session.pre_predicate(task)
    except PredicateFailure as failure:
        return [], {str(failure): len(session.node_order)}
    nominated = (task.pod.get("status") or {}).get("nominatedNodeName") or ""
    if nominated in session.cluster.nodes:
        nodes, _ = session.feasible(task, [session.cluster.nodes[nominated]])
        if nodes and task.request.fits(nodes[0].idle):
            return nodes, {}
        all_nodes, reasons = session.feasible(task, session.node_order)
        idle = [node for node in all_nodes if task.request.fits(node.idle)]
        return idle or nodes or all_nodes, reasons
    return session.feasible(task, session.node_order)


def _goes_on(job: Job) -> bool:
    """Whether placing more tasks can still make sense after one found no node."""
    if job.min_available >= len(job.tasks):
        return False
    if not job.checks_roles:
        left = sum(1 for task in job.having("Pending") if task.role not in job.failed_roles)
        return job.ready_count + left >= job.min_available
    placed = job.having(*ALLOCATED, "Succeeded") + [t for t in job.having("Pending") if t.needs_no_room]
    for role in job.failed_roles:
        minimum = job.task_minima.get(role, 0)
        if minimum and sum(1 for task in placed if task.role == role) < minimum:
            return False
    return True


def _pop_queue(session: Session, queues: list[Queue]) -> Queue:
    first = session.queues_in_order(queues)[0]
    queues.remove(first)
    return first


def _pop_job(session: Session, jobs: list[Job]) -> Job:
    first = session.jobs_in_order(jobs)[0]
    jobs.remove(first)
    return first
