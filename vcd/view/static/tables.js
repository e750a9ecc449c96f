// The cluster's totals, queues, nodes and jobs of an overview.

import { amount, counted, el, inOrder, span } from "./words.js";

// --- totals ----------------------------------------------------------------------------------------------------------

/** The resources that pods use, or ask for in a queue, but for their mere number. */
export function wantedResources({ nodes, queues }) {
  const amounts = [...nodes.map((node) => node.used), ...queues.map((queue) => queue.amounts?.request ?? {})];
  const found = new Set(amounts.flatMap((each) => Object.keys(each).filter((name) => each[name] && name !== "pods")));
  return inOrder(found);
}

/** What all nodes together have and how much of it is used, how many nodes are ready, and pods and jobs by state. */
export function drawTotals(list, overview) {
  const { nodes, pods, jobs } = overview;
  const sum = (kind, resource) => nodes.reduce((total, node) => total + (node[kind][resource] ?? 0), 0);
  const resources = nodes.length ? wantedResources(overview) : [];
  const entries = resources.map((resource) => {
    const [used, room] = [sum("used", resource), sum("allocatable", resource)];
    const words = `${resource} ${amount(resource, used)} of ${amount(resource, room)} (${room ? Math.round((100 * used) / room) : 100} %)`;
    const bar = el("div", { className: "bar", "aria-hidden": "true" }, piece("allocated", 0, room ? Math.min(1, used / room) : 1));
    return el("li", {}, words, bar);
  });
  const ready = nodes.filter((node) => node.ready).length;
  if (nodes.length) entries.push(el("li", {}, `${ready.toLocaleString("en")} of ${counted(nodes.length, "node")} ready`));
  const states = STATES.map((state) => `${jobs.filter((job) => stateOf(job) === state).length.toLocaleString("en")} ${state}`);
  entries.push(el("li", {}, `jobs: ${states.join(", ")}`));
  const statuses = Object.entries(pods).map(([status, count]) => `${count.toLocaleString("en")} ${status}`);
  if (statuses.length) entries.push(el("li", {}, `pods: ${statuses.join(", ")}`));
  list.replaceChildren(...entries);
}

// --- queues ----------------------------------------------------------------------------------------------------------

const SERIES = ["allocated", "request", "deserved", "capability"];

/** The resources that any queue has, asks for or is owed. */
export function queueResources(queues) {
  const found = new Set();
  for (const { amounts = {} } of queues)
    for (const series of SERIES)
      for (const [resource, value] of Object.entries(amounts[series] ?? {})) if (value) found.add(resource);
  return inOrder(found);
}

/** The table of queues, children below their parents. */
export function drawQueues(table, queues, resources, choose) {
  const rows = inTree(queues);
  const parents = new Set(queues.map((queue) => queue.parent).filter(Boolean));
  const scale = new Map();
  const group = (queue, resource) => `${parents.has(queue.name)} ${resource}`;
  for (const { queue } of rows)
    for (const resource of resources) {
      const key = group(queue, resource);
      scale.set(key, Math.max(scale.get(key) ?? 0, ...SERIES.map((series) => queue.amounts?.[series]?.[resource] ?? 0)));
    }
  const head = el("tr", {}, ...["queue", ...resources].map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map(({ queue, depth }) =>
    el(
      "tr",
      {},
      queueName(queue, depth, choose),
      ...resources.map((resource) => bar(queue, resource, scale.get(group(queue, resource)))),
    ),
  );
  table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...body));
}

function queueName(queue, depth, choose) {
  const name = el("button", { type: "button", className: "link", title: "show its jobs" }, queue.name);
  name.addEventListener("click", () => choose(queue.name));
  const share = queue.share == null ? "" : `, share ${queue.share.toFixed(2)}`;
  const cell = el("th", { scope: "row", "data-depth": String(Math.min(depth, 3)) }, name);
  if (queue.state !== "Open") cell.append(el("span", { className: "badge" }, queue.state));
  if (queue.overused) cell.append(el("span", { className: "badge" }, "overused"));
  cell.append(el("small", {}, `weight ${queue.weight}${share}`));
  return cell;
}

function bar(queue, resource, most) {
  const [allocated = 0, request, deserved, capability] = SERIES.map((series) => queue.amounts?.[series]?.[resource]);
  const part = (value) => (most ? value / most : 0);
  const within = deserved == null ? allocated : Math.min(allocated, deserved);
  const pieces = [
    piece("request", 0, part(request ?? 0)),
    piece("allocated", 0, part(within)),
    piece("over", part(within), part(allocated - within)),
  ];
  if (deserved != null) pieces.push(piece("deserved", part(deserved)));
  if (capability != null) pieces.push(piece("capability", part(capability)));
  const words = [deserved == null ? amount(resource, allocated) : `${amount(resource, allocated)} of ${amount(resource, deserved)}`];
  if (request != null && request !== allocated) words.push(`asks ${amount(resource, request)}`);
  if (capability != null) words.push(`at most ${amount(resource, capability)}`);
  const full = `allocated ${words.join(", ")}${deserved == null ? "" : ` (${amount(resource, deserved)} is deserved)`}`;
  return el(
    "td",
    { className: "cell", title: full },
    el("div", { className: "bar", "aria-hidden": "true" }, ...pieces),
    el("small", { className: allocated > within ? "over" : "" }, words.join(" · ")),
  );
}

function piece(name, from, size) {
  const made = el("i", { className: name });
  made.style.setProperty("--from", from);
  if (size != null) made.style.setProperty("--size", Math.max(0, size));
  return made;
}

function inTree(queues) {
  const names = new Set(queues.map((queue) => queue.name));
  const rows = [];
  const shown = new Set();
  const visit = (queue, depth) => {
    if (shown.has(queue.name)) return;
    shown.add(queue.name);
    rows.push({ queue, depth });
    for (const child of queues) if (child.parent === queue.name) visit(child, depth + 1);
  };
  for (const queue of queues) if (!names.has(queue.parent)) visit(queue, 0);
  for (const queue of queues) visit(queue, 0); // parents that go in a circle
  return rows;
}

// --- nodes -----------------------------------------------------------------------------------------------------------

const LEVELS = ["empty", "to 25 %", "to 50 %", "to 75 %", "below 100 %", "full"];
const FEW = 40;

/** What any node has of each resource. */
export function nodeResources(nodes) {
  return inOrder(new Set(nodes.flatMap((node) => Object.keys(node.allocatable))));
}

/** Of those of the resources that a node has, the one of which the largest part is used, and the part; none: null. */
function scarcest(node, resources) {
  let found = null;
  for (const resource of resources) {
    const [room, used] = [node.allocatable[resource] ?? 0, node.used[resource] ?? 0];
    const part = room ? used / room : Infinity;
    if ((room || used) && (found === null || part > found.part)) found = { resource, part };
  }
  return found;
}

function level(found) {
  if (found === null) return "none";
  return found.part >= 1 ? "5" : String(Math.ceil(4 * found.part));
}

/** The nodes as a grid of cells, one stop for the Tab key, in which the arrow keys move. */
export class NodeGrid {
  constructor(grid, key, line, open) {
    Object.assign(this, { grid, key, line, open, nodes: [], cells: [], at: -1, resources: [] });
    grid.addEventListener("keydown", (event) => this.#move(event));
    for (const kind of ["click", "pointerover"])
      grid.addEventListener(kind, (event) => {
        const index = this.cells.indexOf(event.target);
        if (index < 0) return;
        this.#choose(index);
        if (kind === "click") this.open(this.nodes[index].name);
      });
  }

  /** Colour the nodes by the use of a resource, or ("") of the one that is scarcest on each. */
  draw(overview, resource, order) {
    const { nodes } = overview;
    this.resources = resource ? [resource] : wantedResources(overview);
    const use = (node) => scarcest(node, this.resources)?.part ?? 0;
    const chosen = this.nodes[this.at]?.name;
    this.nodes = order === "use" ? [...nodes].sort((a, b) => use(b) - use(a)) : nodes;
    while (this.cells.length < nodes.length) this.cells.push(el("div", { role: "option", id: `node-${this.cells.length}` }));
    this.cells.length = nodes.length;
    if (this.grid.childElementCount !== nodes.length) this.grid.replaceChildren(...this.cells);
    const few = nodes.length <= FEW;
    this.grid.classList.toggle("few", few);
    const counts = new Map();
    this.nodes.forEach((node, index) => {
      const cell = this.cells[index];
      const shade = level(scarcest(node, this.resources));
      counts.set(shade, (counts.get(shade) ?? 0) + 1);
      cell.dataset.use = shade;
      cell.className = node.ready ? "" : "down";
      cell.textContent = few ? node.name : "";
      cell.setAttribute("aria-label", this.#words(node));
    });
    this.#drawKey(counts, nodes.filter((node) => !node.ready).length);
    this.at = this.nodes.findIndex((node) => node.name === chosen);
    this.cells.forEach((cell, index) => cell.setAttribute("aria-selected", String(index === this.at)));
    if (this.at >= 0) this.line.textContent = this.#words(this.nodes[this.at]);
  }

  #drawKey(counts, down) {
    const entry = (properties, text) => el("span", {}, el("i", { "aria-hidden": "true", ...properties }), text);
    const shown = LEVELS.flatMap((name, shade) =>
      counts.get(String(shade)) ? [entry({ "data-use": String(shade) }, `${counts.get(String(shade))} ${name}`)] : [],
    );
    if (counts.get("none")) shown.push(entry({ "data-use": "none" }, `${counts.get("none")} without it`));
    if (down) shown.push(entry({ className: "down" }, `${down} not ready`));
    this.key.replaceChildren(...shown);
  }

  #words(node) {
    const parts = inOrder(Object.keys(node.allocatable))
      .filter((resource) => resource !== "pods")
      .map((resource) => {
        const [used, room] = [node.used[resource] ?? 0, node.allocatable[resource]];
        return `${resource} ${amount(resource, used)} of ${amount(resource, room)} (${Math.round((100 * used) / room)} %)`;
      });
    const most = this.resources.length > 1 ? scarcest(node, this.resources) : null;
    const scarce = most?.part ? `, scarcest is ${most.resource}` : "";
    return `${node.name}${node.ready ? "" : ", not ready"}: ${parts.join(", ")}, ${counted(node.pods, "pod")}${scarce}`;
  }

  #choose(index) {
    this.cells[this.at]?.setAttribute("aria-selected", "false");
    this.at = index;
    this.cells[index].setAttribute("aria-selected", "true");
    this.grid.setAttribute("aria-activedescendant", this.cells[index].id);
    this.line.textContent = this.#words(this.nodes[index]);
  }

  #move(event) {
    const top = this.cells[0]?.offsetTop;
    const across = Math.max(1, this.cells.findIndex((cell) => cell.offsetTop !== top));
    if (event.key === "Enter" && this.at >= 0) this.open(this.nodes[this.at].name);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || !this.cells.length) return;
    event.preventDefault();
    const wanted = this.at < 0 ? 0 : this.at + steps[event.key];
    this.#choose(Math.max(0, Math.min(this.cells.length - 1, wanted)));
    this.cells[this.at].scrollIntoView({ block: "nearest" });
  }
}

// --- jobs ------------------------------------------------------------------------------------------------------------

const COLUMNS = [
  ["key", "job", (job) => job.key],
  ["queue", "queue", (job) => job.queue],
  ["phase", "phase", (job) => job.phase],
  ["priority", "priority", (job) => -job.priority],
  ["running", "pods run", (job) => -job.pods],
  ["minimum", "minimum", (job) => -job.minimum],
  ["since", "waits", (job) => job.since ?? Infinity],
  ["waiting", "for", (job) => job.waiting || "~"],
];

export const STATES = ["waiting", "running", "ended"];

/** Which of STATES a job is in. */
export function stateOf(job) {
  if (job.phase === "Completed" || (job.pods && job.ended === job.pods)) return "ended";
  if (job.phase === "Running" || (job.pods && !job.pending && !job.waiting)) return "running";
  return "waiting";
}

/** The namespaces that jobs are in. */
export const namespacesOf = (jobs) => [...new Set(jobs.map((job) => job.key.split("/")[0]))].sort();

/** The jobs that a filter lets through, in order of a column: longest waiting first unless told otherwise. */
export function chosenJobs(jobs, { namespace, queue, text, state }, [column, down]) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const value = COLUMNS.find(([name]) => name === column)[2];
  const fits = (job) =>
    (!queue || job.queue === queue) &&
    (!namespace || job.key.startsWith(`${namespace}/`)) &&
    (!state || stateOf(job) === state) &&
    words.every((word) => `${job.key} ${job.queue} ${job.phase} ${job.waiting}`.toLowerCase().includes(word));
  const before = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const sorted = jobs.filter(fits).sort((a, b) => before(value(a), value(b)) || before(a.key, b.key));
  return down ? sorted.reverse() : sorted;
}

/** The table of jobs, those that wait, run and ended apart, ``most`` of each; ``time`` is the session's (ns), ``order`` the
 * column and whether it is turned round. */
export function drawJobs(table, jobs, most, time, order, chosen, { open, sort }) {
  const head = COLUMNS.map(([name, title]) => {
    const button = el("button", { type: "button", className: "link", "data-column": name }, title);
    button.addEventListener("click", () => sort(name));
    const cell = el("th", { scope: "col" }, button);
    if (order[0] === name) cell.setAttribute("aria-sort", order[1] ? "descending" : "ascending");
    return cell;
  });
  const line = (job) => {
    const name = el("button", { type: "button", className: "link", "data-job": job.key }, job.key);
    name.addEventListener("click", () => open(job.key));
    const pods = `${job.running} of ${job.pods}`;
    // nanoseconds are more than a number holds exactly; a second is all that is shown
    const since = job.since == null ? "" : span((time - job.since) / 1e6);
    const cells = [job.queue, job.phase, String(job.priority), pods, String(job.minimum), since];
    return el(
      "tr",
      { className: job.key === chosen ? "chosen" : "" },
      el("th", { scope: "row" }, name),
      ...cells.map((text) => el("td", {}, text)),
      el("td", { className: "waits", title: job.waiting }, el("div", {}, job.waiting)),
    );
  };
  const bodies = STATES.flatMap((state) => {
    const found = jobs.filter((job) => stateOf(job) === state);
    const title = `${state[0].toUpperCase()}${state.slice(1)}: ${counted(found.length, "job")}`;
    const heading = el("th", { scope: "rowgroup", "data-state": state }, title);
    heading.colSpan = COLUMNS.length;
    return found.length ? [el("tbody", {}, el("tr", { className: "group" }, heading), ...found.slice(0, most).map(line))] : [];
  });
  table.replaceChildren(el("thead", {}, el("tr", {}, ...head)), ...bodies);
}
