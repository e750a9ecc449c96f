// Jobs: which state each is in, the causes of the waits, and the tables of those that wait and of the others.

import { counted, el, span } from "./words.js";

const PARTS = { waiting: "waiting", partial: "waiting", completed: "ended", failed: "ended" };

/** The part of the page that a job is in, by its state: one with a pod that has no node waits. */
export const stateOf = (job) => PARTS[job.state] ?? "running";

/** The namespaces that jobs are in. */
export const namespacesOf = (jobs) => [...new Set(jobs.map((job) => job.key.split("/")[0]))].sort();

/** Jobs with what the overview's `waits` has of each: how users call it, what it needs, cause and why. */
export function withCauses({ jobs, waits }) {
  const known = new Map(waits.map((wait) => [wait.group, wait]));
  return jobs.map((job) => {
    const { job: name = job.key, needs = "", cause = "", why = job.waiting || "no session has said why" } = known.get(job.key) ?? {};
    return { ...job, name, needs, cause, why };
  });
}

const NO_CAUSE = "no cause yet";

/** The cause of a wait, as the page names it; the address has it as it is logged. */
const causeName = (cause) => (cause ? cause.replaceAll("-", " ") : NO_CAUSE);

/** Whether a job passes the filter of namespace, queue and words. */
export function passes(job, { namespace, queue, text }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const about = `${job.key} ${job.queue} ${job.state} ${job.why}`.toLowerCase();
  const fits = (!queue || job.queue === queue) && (!namespace || job.key.startsWith(`${namespace}/`));
  return fits && words.every((word) => about.includes(word));
}

/** Draw a button for each cause: how many jobs wait for it, and how long the longest does. */
export function drawCauses(list, jobs, now, chosen, choose) {
  const causes = new Map();
  for (const job of jobs) causes.set(job.cause, [...(causes.get(job.cause) ?? []), job]);
  const longest = (group) => Math.min(...group.map((job) => job.since));
  const rows = [...causes].sort(([, a], [, b]) => b.length - a.length || longest(a) - longest(b));
  list.replaceChildren(
    ...rows.map(([cause, group]) => {
      const parts = [el("b", {}, causeName(cause)), el("span", {}, counted(group.length, "job"))];
      const since = el("small", {}, `longest ${span((now - longest(group)) / 1e6)}`);
      const pressed = String(chosen === (cause || NO_CAUSE));
      const button = el("button", { type: "button", "data-cause": cause || NO_CAUSE, "aria-pressed": pressed }, ...parts, since);
      button.addEventListener("click", () => choose(pressed === "true" ? "" : cause || NO_CAUSE));
      return el("li", {}, button);
    }),
  );
}

/** Whether a job waits for a cause that was chosen; "" is each. */
export const hasCause = (job, chosen) => !chosen || (job.cause || NO_CAUSE) === chosen;

// Each column: name, title, the value to sort by, and the text of a job.
export const WAITING = [
  ["key", "job", (job) => job.key],
  ["queue", "queue", (job) => job.queue, (job) => job.queue],
  ["needs", "needs", (job) => job.needs, (job) => job.needs],
  ["since", "waits for", (job) => job.since, (job, now) => span((now - job.since) / 1e6)],
  ["why", "why", (job) => job.why, (job) => job.why],
];
export const OTHERS = [
  ["key", "job", (job) => job.key],
  ["queue", "queue", (job) => job.queue, (job) => job.queue],
  ["state", "state", (job) => job.state, (job) => job.state],
  ["priority", "priority", (job) => -job.priority, (job) => String(job.priority)],
  ["pods", "pods", (job) => -job.pods, (job) => (stateOf(job) === "ended" ? counted(job.pods, "pod") : `${job.running} of ${job.pods} run`)],
];

/** Return jobs in the order of a column. */
export function sorted(columns, jobs, [column, down]) {
  const value = columns.find(([name]) => name === column)[2];
  const before = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const found = [...jobs].sort((a, b) => before(value(a), value(b)) || before(a.key, b.key));
  return down ? found.reverse() : found;
}

/** Draw a table of jobs; ``order`` is the column, and whether it is reversed. */
export function drawJobs(table, columns, jobs, { now, order, chosen, open, sort }) {
  const head = columns.map(([name, title]) => {
    const button = el("button", { type: "button", className: "link", "data-column": name }, title);
    button.addEventListener("click", () => sort([name, order[0] === name && !order[1]]));
    const cell = el("th", { scope: "col" }, button);
    if (order[0] === name) cell.setAttribute("aria-sort", order[1] ? "descending" : "ascending");
    return cell;
  });
  const rows = jobs.map((job) => {
    const name = el("button", { type: "button", className: "link", "data-job": job.key }, job.name);
    name.addEventListener("click", () => open(job.key));
    const cells = columns.slice(1).map(([column, title, , text]) => {
      const words = text(job, now);
      return el("td", { className: column, title: column === "why" ? words : "", "data-label": title }, words);
    });
    return el("tr", { className: job.key === chosen ? "chosen" : "" }, el("th", { scope: "row" }, name), ...cells);
  });
  table.replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}
