// The panel: the answer about a job, the pods of a node, the plan of a session.

import { ask, cancel, orSay } from "./server.js";
import { amount, counted, el, inOrder, resourceName } from "./words.js";

const $ = (id) => document.getElementById(id);
const ABOUT = {
  job: (key, session) => `job?key=${encodeURIComponent(key)}&session=${session}`,
  session: (number) => `session?number=${number}`,
  node: (name, session) => `node?name=${encodeURIComponent(name)}&session=${session}`,
};
const WHEN = /^(\d{4}-\d\d-\d\d [\d:]{8}(?: - (?:[\d -]*[\d:]{8}|now))?)\s{2,}(.*)$/;

/** The panel. ``session()`` is the session to answer as of, empty for the log's end; ``changed`` is called when another
 * thing is displayed, or none. */
export class Panel {
  constructor(session, changed) {
    Object.assign(this, { session, changed, shown: null, opener: null });
    $("close").addEventListener("click", () => this.close());
    $("eta").addEventListener("click", () => this.#forecast());
    $("whatif").addEventListener("submit", (event) => this.#whatIf(event));
    document.addEventListener("keydown", (event) => event.key === "Escape" && !$("ask").open && this.close());
  }

  /** The key of the job that is displayed, or "". */
  get job() {
    return this.shown?.kind === "job" ? this.shown.id : "";
  }

  /** Display a job, a node or a session; without ``focus`` the focus stays where it is. */
  async open(kind, id, focus = true) {
    const fresh = this.shown?.kind !== kind || this.shown.id !== id;
    if (fresh && focus) this.opener = document.activeElement?.dataset?.job ? { job: id } : document.activeElement;
    this.shown = { kind, id };
    $("detail").hidden = false;
    $("main").classList.add("open");
    if (fresh) this.#clear(`${kind} ${id}`);
    this.changed();
    if (focus) $("detail-heading").focus();
    await orSay($("detail-error"), async () => {
      const answer = await ask("detail", ABOUT[kind](id, this.session()));
      if (answer === null) return;
      $("detail-error").textContent = "";
      if (kind === "node") this.#drawPods(answer);
      else if (kind === "job") drawJob(answer);
      else drawSession(answer);
    });
  }

  /** Ask again about what is displayed, since the session is another one. */
  again() {
    if (this.shown) this.open(this.shown.kind, this.shown.id, false);
  }

  close() {
    if ($("detail").hidden) return;
    $("detail").hidden = true;
    $("main").classList.remove("open");
    this.shown = null;
    this.changed();
    const back = this.opener?.job ? document.querySelector(`[data-job="${CSS.escape(this.opener.job)}"]`) : this.opener;
    (back ?? $("waiting-heading")).focus();
  }

  /** The panel before there is an answer. A forecast and a what-if take some seconds: the reader requests them. */
  #clear(heading) {
    for (const part of ["eta", "whatif"]) cancel(part);
    $("detail-heading").textContent = heading;
    $("detail-error").textContent = "reading the log";
    for (const id of ["facts", "answer", "detail-lines", "story-lines", "eta-words", "whatif-status", "whatif-lines"]) $(id).replaceChildren();
    for (const id of ["asks", "story"]) $(id).hidden = this.shown.kind !== "job";
    $("story").open = false;
    $("eta").disabled = false;
    for (const id of ["whatif-queue", "whatif-priority"]) $(id).value = "";
  }

  /** The pods of a node, each with its requests; its job is a link. */
  #drawPods({ node, pods, others }) {
    $("detail-heading").textContent = `node ${node}: ${counted(pods.length + others, "pod")}`;
    const lines = pods.map((pod) => {
      const names = inOrder(Object.keys(pod.asks)).filter((name) => name !== "pods");
      const requests = names.map((name) => `${resourceName(name)} ${amount(name, pod.asks[name])}`);
      const line = el("li", {}, `${pod.key}: ${[pod.status, ...requests].join(", ")}`);
      if (!pod.job) return line;
      const job = el("button", { type: "button", className: "link", "data-pods-job": pod.job }, `job ${pod.job}`);
      job.addEventListener("click", () => this.open("job", pod.job));
      line.append(" ", job);
      return line;
    });
    if (others) lines.push(el("li", { className: "quiet" }, `${counted(others, "pod")} of other namespaces`));
    $("detail-lines").replaceChildren(...lines);
  }

  async #forecast() {
    const words = $("eta-words");
    $("eta").disabled = true;
    words.textContent = "forecasting, which takes some seconds";
    await orSay(words, async () => {
      const answer = await ask("eta", `eta?key=${encodeURIComponent(this.job)}&session=${this.session()}`);
      if (answer === null) return; // another job's panel is open
      words.textContent = `as of session ${answer.session}: ${answer.lines.map(([, text]) => text).join("; ")}`;
    });
    $("eta").disabled = false;
  }

  /** Decide the log's workload again with the job in another queue, or of another priority class. */
  async #whatIf(event) {
    event.preventDefault();
    const words = new URLSearchParams({ key: this.job });
    for (const name of ["queue", "priority"]) if ($(`whatif-${name}`).value.trim()) words.set(name, $(`whatif-${name}`).value.trim());
    $("whatif-lines").replaceChildren();
    $("whatif-status").textContent = "deciding the log's workload again, which takes some seconds";
    await orSay($("whatif-status"), async () => {
      const answer = await ask("whatif", `whatif?${words}`);
      if (answer === null) return; // another job's panel is open
      $("whatif-status").textContent = "";
      $("whatif-lines").replaceChildren(...answer.lines.map(line));
    });
  }
}

/** The answer of `vcd explain job`: a head whose parts two spaces separate, and rows of a name and a sentence. */
function drawJob({ answer, lines }) {
  const [head, ...rows] = answer;
  const [key, ...facts] = head.split(/\s{2,}/);
  $("detail-heading").textContent = key;
  $("facts").replaceChildren(...facts.map((text) => el("li", {}, text)));
  const pairs = rows.map((row) => /^(.*?)\s{2,}(.*)$/.exec(row) ?? ["", "", row]);
  $("answer").replaceChildren(...pairs.flatMap(([, name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  $("story-lines").replaceChildren(...lines.map(line));
}

function drawSession({ lines: [[, title], ...lines] }) {
  $("detail-heading").textContent = title;
  $("detail-lines").replaceChildren(...lines.map(line));
}

function line([depth, text]) {
  const made = el("li", { "data-depth": String(depth) });
  made.style.setProperty("--depth", Math.min(depth, 3));
  const parts = WHEN.exec(text);
  if (parts) made.append(el("span", { className: "when" }, parts[1]), parts[2]);
  else made.append(text);
  return made;
}
