// The table of queues: what each uses, requests, deserves and may use at most.

import { amount, counted, el, inOrder, piece, resourceName } from "./words.js";

const SERIES = ["allocated", "request", "deserved", "capability"];

/** The resources that any queue has, asks for or is owed. */
export function queueResources(queues) {
  const found = new Set();
  for (const { amounts = {} } of queues)
    for (const series of SERIES)
      for (const [resource, value] of Object.entries(amounts[series] ?? {})) if (value) found.add(resource);
  return inOrder(found);
}

const isIdle = ({ amounts = {} }) =>
  ["allocated", "request", "deserved"].every((series) => Object.values(amounts[series] ?? {}).every((value) => !value));

/** Draw the table of queues, children below their parents; queues that use, request and deserve nothing share a row. */
export function drawQueues(table, queues, resources, choose) {
  const rows = inTree(queues.filter((queue) => !isIdle(queue)));
  const idle = queues.filter(isIdle);
  const parents = new Set(queues.map((queue) => queue.parent).filter(Boolean));
  const scale = new Map();
  const group = (queue, resource) => `${parents.has(queue.name)} ${resource}`;
  for (const { queue } of rows)
    for (const resource of resources) {
      const key = group(queue, resource);
      scale.set(key, Math.max(scale.get(key) ?? 0, ...SERIES.map((series) => queue.amounts?.[series]?.[resource] ?? 0)));
    }
  const head = el("tr", {}, ...["queue", ...resources.map(resourceName)].map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map(({ queue, depth }) =>
    el(
      "tr",
      {},
      queueName(queue, depth, choose),
      ...resources.map((resource) => bar(queue, resource, scale.get(group(queue, resource)))),
    ),
  );
  if (idle.length) body.push(idleRow(idle, resources.length, choose));
  table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...body));
}

function idleRow(queues, columns, choose) {
  const cell = el("td", {}, ...queues.flatMap((queue) => [nameLink(queue, choose), ...badges(queue), " "]));
  cell.colSpan = Math.max(1, columns);
  return el("tr", { className: "idle" }, el("th", { scope: "row", className: "quiet" }, counted(queues.length, "idle queue")), cell);
}

function nameLink(queue, choose) {
  const name = el("button", { type: "button", className: "link", title: "list its jobs" }, queue.name);
  name.addEventListener("click", () => choose(queue.name));
  return name;
}

function badges(queue) {
  const words = [queue.state === "Open" ? "" : queue.state, queue.overused ? "overused" : ""].filter(Boolean);
  return words.map((word) => el("span", { className: "badge" }, word));
}

function queueName(queue, depth, choose) {
  const share = queue.share == null ? "" : `, share ${queue.share.toFixed(2)}`;
  const parts = [nameLink(queue, choose), ...badges(queue), el("small", {}, `weight ${queue.weight}${share}`)];
  return el("th", { scope: "row", "data-depth": String(Math.min(depth, 3)) }, ...parts);
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
    { className: "cell", title: full, "data-label": resourceName(resource) },
    el("div", { className: "bar", "aria-hidden": "true" }, ...pieces),
    el("small", { className: allocated > within ? "over" : "" }, words.join(" · ")),
  );
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
