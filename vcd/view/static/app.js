// The page: the overview of one session, the filter of its jobs, and the address that names what is displayed.

import { drawCluster } from "./cluster.js";
import { OTHERS, WAITING, drawCauses, drawJobs, hasCause, namespacesOf, passes, sorted, stateOf, withCauses } from "./jobs.js";
import { NodeGrid, nodeResources } from "./nodes.js";
import { Panel } from "./panel.js";
import { drawQueues, queueResources } from "./queues.js";
import { Trouble, ask, needsToken, reporting } from "./server.js";
import { Timeline } from "./timeline.js";
import { counted, el, resourceName } from "./words.js";

const POLL = 2000; // ms between two looks at the log's head
const PAUSE = 120; // ms that the slider rests before a session is requested
const ROWS = 15; // jobs of each table at first, and more with each press

const $ = (id) => document.getElementById(id);
const NOTHING = { session: 0, time: 0, resource: "", queues: [], nodes: [], jobs: [], waits: [], pods: {} };
const state = {
  overview: NOTHING,
  loaded: 0, // the session that is requested, or displayed
  resources: null, // those of the queues that the reader chose; null: the first ones
  cause: "", // that waiting jobs are filtered by
  waiting: { order: ["since", false], rows: ROWS },
  others: { order: ["key", false], rows: ROWS },
};
const wanted = new URLSearchParams(location.search || location.hash.slice(1));
const timeline = new Timeline(selected);
const panel = new Panel(asOf, () => {
  remember();
  drawTables();
});
const grid = new NodeGrid($("nodes"), $("node-key"), $("node"), (name) => panel.open("node", name));

// --- the session -----------------------------------------------------------------------------------------------------

let pause = 0;

function selected() {
  remember();
  $("latest").hidden = !asOf();
  if (state.loaded === timeline.selected) return;
  state.loaded = timeline.selected;
  clearTimeout(pause);
  pause = setTimeout(() => reporting("session", load), PAUSE);
}

async function load() {
  try {
    const overview = await ask("overview", state.loaded ? `overview?session=${state.loaded}` : "overview");
    if (overview === null) return;
    state.overview = overview;
  } catch (error) {
    state.overview = NOTHING; // or another session's would stay
    draw();
    throw error;
  }
  draw();
  panel.again();
}

/** The session that answers are as of: empty for the log's end. */
function asOf() {
  return timeline.selected === timeline.ends.last ? "" : String(timeline.selected);
}

/** The time that waits last until (ns): that of a past session, else the one that the server states. */
function now() {
  return asOf() ? state.overview.time : Math.max(state.overview.time, timeline.ends.as_of * 1e6);
}

// --- the parts of the page -------------------------------------------------------------------------------------------

function draw() {
  const { queues, nodes, jobs } = state.overview;
  $("withheld").textContent = (state.overview.withheld ?? []).join("; ");
  drawCluster($("total"), state.overview, now());
  $("queue-names").replaceChildren(...queues.map((queue) => el("option", { value: queue.name })));
  setOptions($("job-namespace"), ["", ...namespacesOf(jobs)], "all namespaces");
  setOptions($("job-queue"), ["", ...new Set([...queues.map((queue) => queue.name), ...jobs.map((job) => job.queue)])], "all queues");
  drawTables();
  drawQueueTable();
  setOptions($("node-resource"), ["", ...nodeResources(nodes)], "the scarcest resource");
  drawNodes();
}

function drawQueueTable() {
  const { queues, resource } = state.overview;
  const found = queueResources(queues);
  const resources = [...new Set([resource, ...found])].filter((name) => found.includes(name)); // the main one first
  const shown = resources.filter((name) => (state.resources ?? resources.filter((one) => one !== "pods").slice(0, 3)).includes(name));
  drawChoices(resources, shown);
  drawQueues($("queues"), queues, shown, (queue) => {
    $("job-queue").value = queue;
    filtered();
    $("waiting-heading").focus();
  });
}

function drawChoices(resources, shown) {
  const boxes = resources.map((name) => {
    const box = el("input", { type: "checkbox", checked: shown.includes(name), value: name });
    return el("label", { className: "check" }, box, resourceName(name));
  });
  const names = [...$("resources").querySelectorAll("input")].map((box) => box.value);
  if (names.join() !== resources.join()) $("resources").replaceChildren($("resources").firstElementChild, ...boxes);
}

function setOptions(list, values, none) {
  if (list.value && !values.includes(list.value)) values.push(list.value); // the reader's choice stays, without jobs
  if ([...list.options].map((option) => option.value).join() === values.join()) return;
  const before = list.value;
  list.replaceChildren(...values.map((value) => el("option", { value }, value || none)));
  list.value = before;
}

function drawNodes() {
  grid.draw(state.overview, $("node-resource").value, $("node-order").value, $("node-text").value);
}

function drawTables() {
  const filter = { namespace: $("job-namespace").value, queue: $("job-queue").value, text: $("job-text").value };
  const jobs = withCauses(state.overview).filter((job) => passes(job, filter));
  const waiting = jobs.filter((job) => stateOf(job) === "waiting");
  drawCauses($("causes"), waiting, now(), state.cause, (cause) => {
    state.cause = cause;
    filtered();
    $("causes").querySelector(`[data-cause="${CSS.escape(cause)}"]`)?.focus();
  });
  drawTable("waiting", WAITING, waiting.filter((job) => hasCause(job, state.cause)), "no job waits");
  const chosen = $("job-state").value;
  drawTable("others", OTHERS, jobs.filter((job) => stateOf(job) !== "waiting" && (!chosen || stateOf(job) === chosen)), "no other job");
}

function drawTable(name, columns, jobs, none) {
  const table = $(name);
  const { order, rows } = state[name];
  const focused = table.contains(document.activeElement) ? document.activeElement.dataset : {};
  const again = focused.job ? `[data-job="${CSS.escape(focused.job)}"]` : focused.column && `[data-column="${focused.column}"]`;
  drawJobs(table, columns, sorted(columns, jobs, order).slice(0, rows), {
    now: now(),
    order,
    chosen: panel.job,
    open: (key) => panel.open("job", key),
    sort: (column) => {
      state[name].order = column;
      drawTables();
    },
  });
  if (again) table.querySelector(again)?.focus();
  table.parentElement.hidden = !jobs.length;
  $(`${name}-more`).hidden = jobs.length <= rows;
  $(`${name}-count`).textContent = jobs.length > rows ? `${rows} of ${counted(jobs.length, "job")}` : jobs.length ? counted(jobs.length, "job") : none;
}

/** Draw the jobs by another filter, from the first row on. */
function filtered() {
  for (const name of ["waiting", "others"]) state[name].rows = ROWS;
  remember();
  drawTables();
}

// --- the address -----------------------------------------------------------------------------------------------------

const FILTERS = { namespace: "job-namespace", queue: "job-queue", find: "job-text" };

/** Write into the address what is displayed: it is a link for others. The log's end is no session of its own. */
function remember() {
  const words = new URLSearchParams();
  if (!timeline.live && timeline.selected) words.set("session", String(timeline.selected));
  for (const [name, id] of Object.entries(FILTERS)) if ($(id).value) words.set(name, $(id).value);
  if (state.cause) words.set("cause", state.cause);
  if (panel.shown) words.set(panel.shown.kind === "session" ? "plan" : panel.shown.kind, String(panel.shown.id));
  history.replaceState(null, "", words.size ? `?${words}` : location.pathname);
}

/** Set the filters to those of the address. */
function readFilters() {
  for (const [name, id] of Object.entries(FILTERS)) {
    const value = wanted.get(name) ?? "";
    if ($(id).tagName === "SELECT" && value) $(id).append(el("option", { value }, value));
    $(id).value = value;
  }
  state.cause = wanted.get("cause") ?? "";
}

/** Return the session that the address names, or that was the last one at the time that it names. */
async function sessionWanted() {
  const number = Number(wanted.get("plan") ?? wanted.get("session"));
  if (number || !wanted.get("at")) return number;
  const found = await ask("at", `at?time=${encodeURIComponent(wanted.get("at"))}`);
  if (found?.remark) reporting("remark", () => Promise.reject(new Trouble(found.remark)));
  return found?.session;
}

async function begin() {
  readFilters();
  wire();
  const isPinned = ["session", "plan", "at"].some((name) => wanted.has(name));
  $("live").checked = !isPinned;
  $("sessions").open = isPinned;
  draw();
  await reporting("log", look);
  await reporting("link", async () => {
    const number = isPinned && (await sessionWanted());
    if (number) timeline.choose(number);
  });
  for (const kind of ["job", "node"]) if (wanted.has(kind)) panel.open(kind, wanted.get(kind), false);
  if (wanted.has("plan")) panel.open("session", timeline.selected, false);
  reporting("older", () => timeline.older());
  setInterval(() => document.hidden || needsToken() || reporting("log", look), POLL);
}

/** Look where the log ends now. Before the first session the overview follows each event. */
async function look() {
  const before = timeline.ends;
  await timeline.look();
  if (before.head !== timeline.ends.head && !timeline.ends.last) return load();
  if (before.as_of === timeline.ends.as_of || asOf() || !state.overview.time) return;
  drawCluster($("total"), state.overview, now()); // waits last longer by now
  drawTables();
}

function wire() {
  const plan = () => panel.open("session", timeline.selected);
  for (const id of ["plan", "near"]) $(id).addEventListener("click", plan);
  $("slider").addEventListener("keydown", (event) => event.key === "Enter" && plan());
  $("latest").addEventListener("click", () => {
    $("live").checked = true;
    timeline.select(timeline.ends.last);
  });
  $("resources").addEventListener("change", () => {
    state.resources = [...$("resources").querySelectorAll("input:checked")].map((box) => box.value);
    drawQueueTable();
  });
  for (const id of ["node-resource", "node-order", "node-text"]) $(id).addEventListener("input", drawNodes);
  for (const id of [...Object.values(FILTERS), "job-state"]) $(id).addEventListener("input", filtered);
  for (const name of ["waiting", "others"])
    $(`${name}-more`).addEventListener("click", () => {
      state[name].rows += 5 * ROWS;
      drawTables();
    });
}

begin();
