// The page: which session is shown, what is asked of the server, and the keys.

import { Strip, acted, named } from "./strip.js";
import { NodeGrid, chosenJobs, drawJobs, drawQueues, drawTotals, namespacesOf, nodeResources, queueResources } from "./tables.js";
import { amount, counted, el, inOrder, moment } from "./words.js";

const PAGE = 2000; // sessions asked for at once
const NEAR = 120; // sessions in the closer strip
const POLL = 2000; // ms between two looks at the log's head
const PAUSE = 120; // ms that the slider rests before a session is asked for
const ROWS = 200; // jobs of each state shown at first

const $ = (id) => document.getElementById(id);
const state = {
  ends: { head: 0, time: 0, first: 0, last: 0 },
  lines: [], // sessions in order of number, as far as they are there
  selected: 0,
  overview: null,
  resources: null, // those of the queues that the reader chose; null: the first ones
  order: ["since", false],
  rows: ROWS,
  detail: null, // what the panel shows: {kind, id}
  opener: null, // where the focus goes back to
  token: "",
};
const strips = {
  whole: new Strip($("whole"), (number) => choose(number)),
  near: new Strip($("near"), (number) => choose(number)),
};
const grid = new NodeGrid($("nodes"), $("node-key"), $("node"), (name) => openDetail("node", name, "node"));

// --- asking ----------------------------------------------------------------------------------------------------------

const asked = {}; // the request under way for each part of the page; a newer one ends it

/** What the server said went wrong, or that it says nothing; the message is for the reader. */
class Trouble extends Error {}

/** An answer of the server; null when a newer question for the same part came. Throws Trouble. */
async function ask(part, path) {
  asked[part]?.abort();
  const mine = (asked[part] = new AbortController());
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  let answer, body;
  try {
    answer = await fetch(`api/${path}`, { headers, signal: mine.signal });
    body = await answer.json();
  } catch (error) {
    if (mine.signal.aborted) return null;
    throw new Trouble(`the server does not answer (${error.message})`);
  }
  if (mine.signal.aborted) return null;
  if (answer.status === 401) {
    await askForToken(body.error);
    return ask(part, path);
  }
  if (answer.status === 403 && state.token) throw new Trouble(`${body.error}; reload the page to show another token`);
  if (!answer.ok) throw new Trouble(body.error);
  return body;
}

let asking = null;

function askForToken(why) {
  asking ??= new Promise((resolve) => {
    $("ask-why").textContent = why;
    $("ask").showModal();
    $("ask").addEventListener(
      "close",
      () => {
        state.token = $("token").value.trim();
        $("token").value = "";
        asking = null;
        resolve();
      },
      { once: true },
    );
  });
  return asking;
}

const troubles = new Map(); // by part of the page, until it works again

/** Do a part of the page's work, and say in the header what the server could not do. */
async function told(part, work) {
  try {
    await work();
    troubles.delete(part);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    troubles.set(part, error.message);
  }
  $("status").textContent = [...new Set(troubles.values())].join("; ");
}

// --- the log ---------------------------------------------------------------------------------------------------------

/** Look where the log ends now; take over sessions that are new. */
async function look() {
  const ends = await ask("head", "head");
  if (ends === null) return;
  const grown = ends.last > state.ends.last;
  state.ends = ends;
  $("head").textContent = ends.last
    ? `sessions ${ends.first} to ${ends.last}, events to ${ends.head.toLocaleString("en")}, ${moment(ends.time)} UTC`
    : "no session is in the log yet";
  $("standing").textContent = ends.standing?.words ?? "";
  $("standing").classList.toggle("lacks", ends.standing?.lacks ?? false);
  $("remarks").textContent = ends.remarks.join("; ");
  for (const input of [$("slider"), $("number")]) Object.assign(input, { min: ends.first, max: ends.last });
  state.lines = state.lines[0]?.number < ends.first ? state.lines.filter((line) => line.number >= ends.first) : state.lines;
  if (!grown) return;
  await newer();
  if ($("live").checked || !state.selected) select(ends.last);
  else drawStrips();
}

/** Load the sessions after the last one that is there; at first the newest of them. */
async function newer() {
  const after = state.lines.at(-1)?.number ?? Math.max(state.ends.first, state.ends.last - PAGE + 1) - 1;
  for (let from = after + 1; from <= state.ends.last; from += PAGE) {
    const more = await sessions("newer", from, Math.min(state.ends.last, from + PAGE - 1));
    if (more === null) return;
    state.lines.push(...more);
  }
}

/** Load the sessions before those that are there, piece by piece. */
async function older() {
  while (state.lines.length && state.lines[0].number > state.ends.first) {
    const to = state.lines[0].number - 1;
    const more = await sessions("older", Math.max(state.ends.first, to - PAGE + 1), to);
    if (!more?.length) return;
    state.lines = [...more, ...state.lines];
    drawStrips();
  }
}

async function sessions(part, from, to) {
  return (await ask(part, `sessions?from=${from}&to=${to}`))?.map(named) ?? null;
}

// --- the session that is shown ---------------------------------------------------------------------------------------

let pause = 0;

/** The reader's own choice, which ends following the log unless it is its end. */
function choose(number) {
  if (number < state.ends.last) $("live").checked = false;
  tellMissing(number);
  select(number);
}

/** Say why a session that is asked for is not in the log; another one is shown in its place. */
function tellMissing(number) {
  const missing = number < state.ends.first || number > state.ends.last;
  if (missing || troubles.has("missing")) told("missing", async () => missing && (await ask("missing", `overview?session=${number}`)));
}

/** Show a session; the one asked for last wins. */
function select(number) {
  const wanted = nearest(Math.max(state.ends.first, Math.min(state.ends.last, Math.round(number) || state.ends.last)));
  if (wanted === state.selected && state.overview?.session === wanted) return;
  state.selected = wanted;
  $("slider").value = $("number").value = String(wanted);
  const words = sessionWords(wanted);
  $("caption").textContent = words;
  $("slider").setAttribute("aria-valuetext", words);
  drawStrips();
  remember();
  clearTimeout(pause);
  pause = setTimeout(() => told("session", showSession), PAUSE);
}

/** A number in the log is that of a session unless history was cut out of it. */
function nearest(number) {
  const after = state.lines.find((line) => line.number >= number);
  return !after || state.lines[0].number > number ? number : after.number;
}

const lineOf = (number) => state.lines.find((line) => line.number === number);

function sessionWords(number) {
  const line = lineOf(number);
  if (!line) return `session ${number}`;
  const parts = [
    [line.binds, "bind"],
    [line.evictions, "eviction"],
    [line.held, "room held", "rooms held"],
    [line.admitted, "group admitted", "groups admitted"],
    [line.waiting, "group waits otherwise", "groups wait otherwise"],
    [line.stale, "statement dropped", "statements dropped"],
    [line.faults, "plugin failed", "plugins failed"],
  ].filter(([count]) => count);
  const done = parts.map(([count, one, many]) => (many && count !== 1 ? `${count} ${many}` : many ? `1 ${one}` : counted(count, one)));
  return `session ${number}, ${moment(line.time)}: ${done.join(", ") || "nothing changed"}`;
}

async function showSession() {
  const session = state.selected;
  let overview;
  try {
    overview = await ask("overview", `overview?session=${session}`);
  } catch (error) {
    state.overview = { session: 0, time: 0, queues: [], nodes: [], jobs: [], pods: {} }; // or another session's would stay
    draw();
    throw error;
  }
  if (overview === null) return;
  state.overview = overview;
  draw();
  $("withheld").textContent = (overview.withheld ?? []).join("; ");
  if (state.detail) await openDetail(state.detail.kind, state.detail.kind === "session" ? overview.session : state.detail.id, null);
}

function drawStrips() {
  const { first, last } = state.ends;
  const many = last - first + 1 > 2 * NEAR;
  strips.whole.draw(state.lines, [first, last], state.selected);
  $("near").hidden = !many;
  if (!many) return;
  const from = Math.max(first, Math.min(last - NEAR + 1, state.selected - NEAR / 2));
  const near = state.lines.filter((line) => line.number >= from && line.number < from + NEAR);
  strips.near.draw(near, [from, from + NEAR - 1], state.selected);
}

// --- queues, nodes, jobs ---------------------------------------------------------------------------------------------

function draw() {
  const { queues, nodes, jobs } = state.overview;
  drawTotals($("total"), state.overview);
  $("queue-names").replaceChildren(...queues.map((queue) => el("option", { value: queue.name })));
  const resources = queueResources(queues);
  const shown = resources.filter((name) => (state.resources ?? resources.filter((name) => name !== "pods").slice(0, 3)).includes(name));
  drawChoices(resources, shown);
  drawQueues($("queues"), queues, shown, (queue) => {
    $("job-queue").value = queue;
    drawJobTable();
    $("jobs-heading").focus();
  });
  setOptions($("node-resource"), ["", ...nodeResources(nodes)], "the scarcest resource");
  drawNodes();
  setOptions($("job-namespace"), ["", ...namespacesOf(jobs)]);
  setOptions($("job-queue"), ["", ...new Set([...queues.map((queue) => queue.name), ...jobs.map((job) => job.queue)])]);
  drawJobTable();
}

function drawChoices(resources, shown) {
  const boxes = resources.map((name) => {
    const box = el("input", { type: "checkbox", checked: shown.includes(name), value: name });
    return el("label", { className: "check" }, box, name);
  });
  const names = [...$("resources").querySelectorAll("input")].map((box) => box.value);
  if (names.join() !== resources.join()) $("resources").replaceChildren($("resources").firstElementChild, ...boxes);
}

function setOptions(list, values, none = "all") {
  if ([...list.options].map((option) => option.value).join() === values.join()) return;
  const before = list.value;
  list.replaceChildren(...values.map((value) => el("option", { value }, value || none)));
  list.value = values.includes(before) ? before : values[0] ?? "";
}

function drawNodes() {
  if (state.overview) grid.draw(state.overview, $("node-resource").value, $("node-order").value);
}

function drawJobTable() {
  if (!state.overview) return;
  const chosenOf = (name) => $(`job-${name}`).value;
  const filter = { namespace: chosenOf("namespace"), queue: chosenOf("queue"), text: chosenOf("text"), state: chosenOf("state") };
  const found = chosenJobs(state.overview.jobs, filter, state.order);
  const chosen = state.detail?.kind === "job" ? state.detail.id : "";
  const focused = document.activeElement?.dataset;
  const again = focused?.job ? `[data-job="${CSS.escape(focused.job)}"]` : focused?.column && `[data-column="${focused.column}"]`;
  drawJobs($("jobs"), found, state.rows, state.overview.time, state.order, chosen, {
    open: (key) => openDetail("job", key, key),
    sort: (column) => {
      state.order = [column, state.order[0] === column && !state.order[1]];
      drawJobTable();
    },
  });
  if (again) $("jobs").querySelector(again)?.focus();
  const shown = $("jobs").querySelectorAll("[data-job]").length;
  $("more").hidden = shown === found.length;
  $("job-count").textContent = `${shown.toLocaleString("en")} of ${counted(state.overview.jobs.length, "job")}`;
}

// --- the panel -------------------------------------------------------------------------------------------------------

const ABOUT = {
  job: (key) => `job?key=${encodeURIComponent(key)}&session=${state.selected}`,
  session: (number) => `session?number=${number}`,
  node: (name) => `node?name=${encodeURIComponent(name)}&session=${state.selected}`,
};

/** Tell of a job, a node or a session in the panel; ``opener`` is what was pressed (null: leave the focus). */
async function openDetail(kind, id, opener) {
  const fresh = state.detail?.kind !== kind || state.detail.id !== id;
  if (fresh && opener !== null) state.opener = document.activeElement?.dataset?.job ? { job: id } : document.activeElement;
  state.detail = { kind, id };
  remember();
  showPanel();
  if (fresh) clearDetail(`${kind} ${id}`);
  if (kind === "job") drawJobTable();
  if (opener !== null) $("detail-heading").focus();
  try {
    const answer = await ask("detail", ABOUT[kind](id));
    if (answer === null) return;
    if (kind === "node") drawPods(answer);
    else drawStory(answer);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    $("verdict").hidden = true;
    $("detail-lines").replaceChildren(el("li", {}, error.message));
  }
}

/** The panel before there is an answer. A forecast and a what-if take some seconds, so they are asked for by button. */
function clearDetail(heading) {
  for (const part of ["eta", "whatif"]) asked[part]?.abort();
  $("detail-heading").textContent = heading;
  $("detail-lines").replaceChildren(el("li", { className: "quiet" }, "asking the log"));
  $("verdict").hidden = true;
  $("asks").hidden = state.detail.kind !== "job";
  $("eta").disabled = false;
  for (const id of ["eta-words", "whatif-status", "whatif-lines"]) $(id).replaceChildren();
  for (const id of ["whatif-queue", "whatif-priority"]) $(id).value = "";
}

function drawStory(answer) {
  const [[, title], ...lines] = answer.lines;
  const verdict = lines.splice(0, answer.verdict ?? 0);
  $("detail-heading").textContent = title;
  $("verdict").textContent = verdict.map(([, text]) => text).join("\n");
  $("verdict").hidden = !verdict.length;
  $("detail-lines").replaceChildren(...lines.map(detailLine));
}

/** The pods of a node, each with what it asks for; its job is a link. */
function drawPods({ node, pods, others }) {
  $("detail-heading").textContent = `node ${node}: ${counted(pods.length + others, "pod")}`;
  const lines = pods.map((pod) => {
    const asks = inOrder(Object.keys(pod.asks)).filter((name) => name !== "pods").map((name) => `${name} ${amount(name, pod.asks[name])}`);
    const line = el("li", {}, `${pod.key}: ${[pod.status, ...asks].join(", ")}`);
    if (!pod.job) return line;
    const job = el("button", { type: "button", className: "link", "data-pods-job": pod.job }, `job ${pod.job}`);
    job.addEventListener("click", () => openDetail("job", pod.job, "pod"));
    line.append(" ", job);
    return line;
  });
  if (others) lines.push(el("li", { className: "quiet" }, `${counted(others, "pod")} of other namespaces`));
  $("detail-lines").replaceChildren(...lines);
}

async function tellEta() {
  const session = state.selected;
  $("eta").disabled = true;
  $("eta-words").textContent = `forecasting as of session ${session}, which takes some seconds`;
  try {
    const answer = await ask("eta", `eta?key=${encodeURIComponent(state.detail.id)}&session=${session}`);
    if (answer === null) return; // another job's panel is open
    $("eta-words").textContent = `as of session ${session}: ${answer.lines.map(([, text]) => text).join("; ")}`;
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    $("eta-words").textContent = error.message;
  }
  $("eta").disabled = false;
}

/** Let the log's workload come again with the job in another queue, or of another priority class. */
async function tellWhatIf(event) {
  event.preventDefault();
  const words = new URLSearchParams({ key: state.detail.id });
  for (const name of ["queue", "priority"]) if ($(`whatif-${name}`).value.trim()) words.set(name, $(`whatif-${name}`).value.trim());
  $("whatif-lines").replaceChildren();
  $("whatif-status").textContent = "the log's workload comes again, which takes some seconds";
  try {
    const answer = await ask("whatif", `whatif?${words}`);
    if (answer === null) return; // another job's panel is open
    $("whatif-status").textContent = "";
    $("whatif-lines").replaceChildren(...answer.lines.map(detailLine));
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    $("whatif-status").textContent = error.message;
  }
}

function showPanel() {
  $("detail").hidden = false;
  $("main").classList.add("open");
}

const WHEN = /^(\d{4}-\d\d-\d\d [\d:]{8}(?: - (?:[\d -]*[\d:]{8}|now))?)\s{2,}(.*)$/;

function detailLine([depth, text]) {
  const line = el("li", { "data-depth": String(depth) });
  line.style.setProperty("--depth", Math.min(depth, 3));
  const parts = WHEN.exec(text);
  if (parts) line.append(el("span", { className: "when" }, parts[1]), parts[2]);
  else line.append(text);
  return line;
}

function closeDetail() {
  if ($("detail").hidden) return;
  $("detail").hidden = true;
  $("main").classList.remove("open");
  state.detail = null;
  remember();
  drawJobTable();
  const back = state.opener?.job ? $("jobs").querySelector(`[data-job="${CSS.escape(state.opener.job)}"]`) : state.opener;
  (back ?? $("jobs-heading")).focus();
}

/** The address names what is shown, so that it can be sent to somebody. */
function remember() {
  const words = new URLSearchParams({ session: String(state.selected) });
  if (state.detail) words.set(state.detail.kind === "session" ? "plan" : state.detail.kind, String(state.detail.id));
  history.replaceState(null, "", `?${words}`);
}

// --- keys and clicks -------------------------------------------------------------------------------------------------

function step(direction, only = () => true) {
  const lines = direction > 0 ? state.lines : [...state.lines].reverse();
  const found = lines.find((line) => (line.number - state.selected) * direction > 0 && only(line));
  if (found) choose(found.number);
}

function wire() {
  const plan = () => openDetail("session", state.selected, "plan");
  $("slider").addEventListener("input", (event) => choose(Number(event.target.value)));
  $("slider").addEventListener("keydown", (event) => event.key === "Enter" && plan());
  $("number").addEventListener("change", (event) => choose(Number(event.target.value)));
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  $("previous-act").addEventListener("click", () => step(-1, acted));
  $("next-act").addEventListener("click", () => step(1, acted));
  $("plan").addEventListener("click", plan);
  $("near").addEventListener("click", plan);
  $("close").addEventListener("click", closeDetail);
  $("eta").addEventListener("click", tellEta);
  $("live").addEventListener("change", () => $("live").checked && select(state.ends.last));
  $("resources").addEventListener("change", () => {
    state.resources = [...$("resources").querySelectorAll("input:checked")].map((box) => box.value);
    draw();
  });
  for (const id of ["node-resource", "node-order"]) $(id).addEventListener("change", drawNodes);
  $("whatif").addEventListener("submit", tellWhatIf);
  for (const id of ["job-namespace", "job-queue", "job-text", "job-state"])
    $(id).addEventListener("input", () => {
      state.rows = ROWS;
      drawJobTable();
    });
  $("more").addEventListener("click", () => {
    state.rows += ROWS;
    drawJobTable();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && !$("ask").open && closeDetail());
  const again = new ResizeObserver(() => {
    drawStrips();
    const below = getComputedStyle($("whole").parentElement).position === "sticky" ? $("whole").parentElement.offsetHeight + 8 : 0;
    document.documentElement.style.setProperty("--below", `${below}px`);
  });
  again.observe($("whole"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawStrips);
}

async function begin() {
  wire();
  const words = new URLSearchParams(location.search || location.hash.slice(1));
  await told("log", look);
  let wanted = Number(words.get("plan") ?? words.get("session"));
  if (!wanted && words.get("at"))
    await told("link", async () => {
      const found = await ask("at", `at?time=${encodeURIComponent(words.get("at"))}`);
      wanted = found?.session;
      if (found?.remark) throw new Trouble(found.remark);
    });
  if (wanted) {
    tellMissing(wanted);
    select(wanted);
  }
  if (words.get("job")) openDetail("job", words.get("job"), null);
  else if (words.get("node")) openDetail("node", words.get("node"), null);
  else if (words.get("plan")) openDetail("session", state.selected, null);
  told("older", older);
  setInterval(() => document.hidden || asking || told("log", look), POLL);
}

begin();
