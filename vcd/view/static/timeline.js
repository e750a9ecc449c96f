// The sessions of the log: the slider, the strips above it, and what each session did in words.

import { ask, hasError, reporting } from "./server.js";
import { Strip, acted, named } from "./strip.js";
import { moment } from "./words.js";

const PAGE = 2000; // sessions requested at once
const NEAR = 120; // sessions in the closer strip

const $ = (id) => document.getElementById(id);

/** What the log has, and which session of it is displayed. ``changed`` is called when another one is selected. */
export class Timeline {
  constructor(changed) {
    this.ends = { head: 0, time: 0, as_of: 0, first: 0, last: 0 };
    this.lines = []; // sessions in order of number, as many as are loaded
    this.selected = 0;
    this.changed = changed;
    this.whole = new Strip($("whole"), (number) => this.choose(number));
    this.near = new Strip($("near"), (number) => this.choose(number));
    this.#wire();
  }

  /** Whether the page follows the log's end. */
  get live() {
    return $("live").checked;
  }

  #wire() {
    $("slider").addEventListener("input", (event) => this.choose(Number(event.target.value)));
    $("number").addEventListener("change", (event) => this.choose(Number(event.target.value)));
    $("previous").addEventListener("click", () => this.step(-1));
    $("next").addEventListener("click", () => this.step(1));
    $("previous-act").addEventListener("click", () => this.step(-1, acted));
    $("next-act").addEventListener("click", () => this.step(1, acted));
    $("live").addEventListener("change", () => (this.live ? this.select(this.ends.last) : this.changed()));
    $("sessions").addEventListener("toggle", () => this.draw());
    new ResizeObserver(() => this.draw()).observe($("whole"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Look where the log ends now; take over sessions that are new. */
  async look() {
    const ends = await ask("head", "head");
    if (ends === null) return;
    const grown = ends.last > this.ends.last;
    this.ends = ends;
    $("head").textContent = ends.last
      ? `sessions ${ends.first} to ${ends.last}, events to ${ends.head.toLocaleString("en")}, ${moment(ends.time)} UTC`
      : "no session is in the log yet";
    $("standing").textContent = ends.standing?.words ?? "";
    $("standing").classList.toggle("lacks", ends.standing?.lacks ?? false);
    $("remarks").textContent = ends.remarks.join("; ");
    for (const input of [$("slider"), $("number")]) Object.assign(input, { min: ends.first, max: ends.last });
    if (this.lines[0]?.number < ends.first) this.lines = this.lines.filter((line) => line.number >= ends.first);
    if (!grown) return;
    await this.#newer();
    if (this.live || !this.selected) this.select(ends.last);
    else this.draw();
  }

  /** Load the sessions after the last one that is there; at first the newest of them. */
  async #newer() {
    const after = this.lines.at(-1)?.number ?? Math.max(this.ends.first, this.ends.last - PAGE + 1) - 1;
    for (let from = after + 1; from <= this.ends.last; from += PAGE) {
      const more = await sessions("newer", from, Math.min(this.ends.last, from + PAGE - 1));
      if (more === null) return;
      this.lines.push(...more);
    }
  }

  /** Load the sessions before those that are there, piece by piece. */
  async older() {
    while (this.lines.length && this.lines[0].number > this.ends.first) {
      const to = this.lines[0].number - 1;
      const more = await sessions("older", Math.max(this.ends.first, to - PAGE + 1), to);
      if (!more?.length) return;
      this.lines = [...more, ...this.lines];
      this.draw();
    }
  }

  /** The reader's own choice, which ends following the log unless it is its end. */
  choose(number) {
    if (number < this.ends.last) $("live").checked = false;
    this.#reportMissing(number);
    this.select(number);
  }

  /** Report that a session is not in the log; another one is displayed in its place. */
  #reportMissing(number) {
    const missing = number < this.ends.first || number > this.ends.last;
    if (missing || hasError("missing"))
      reporting("missing", async () => missing && (await ask("missing", `overview?session=${number}`)));
  }

  /** Display a session; the one selected last wins. */
  select(number) {
    const wanted = this.#nearest(Math.max(this.ends.first, Math.min(this.ends.last, Math.round(number) || this.ends.last)));
    const words = this.#words(wanted);
    this.selected = wanted;
    $("slider").value = $("number").value = String(wanted);
    $("caption").textContent = words;
    $("slider").setAttribute("aria-valuetext", words);
    this.draw();
    this.changed();
  }

  /** A number in the log is that of a session unless history was cut out of it. */
  #nearest(number) {
    const after = this.lines.find((line) => line.number >= number);
    return !after || this.lines[0].number > number ? number : after.number;
  }

  step(direction, only = () => true) {
    const lines = direction > 0 ? this.lines : [...this.lines].reverse();
    const found = lines.find((line) => (line.number - this.selected) * direction > 0 && only(line));
    if (found) this.choose(found.number);
  }

  #words(number) {
    const line = this.lines.find((one) => one.number === number);
    if (!line) return `session ${number}`;
    const parts = [
      [line.binds, "bind", "binds"],
      [line.evictions, "eviction", "evictions"],
      [line.held, "pod pipelined", "pods pipelined"],
      [line.admitted, "group admitted", "groups admitted"],
      [line.waiting, "wait changed", "waits changed"],
      [line.stale, "statement dropped", "statements dropped"],
      [line.faults, "plugin failed", "plugins failed"],
    ].filter(([count]) => count);
    const done = parts.map(([count, one, many]) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`);
    return `session ${number}, ${moment(line.time)}: ${done.join(", ") || "nothing changed"}`;
  }

  /** Draw the strips, if they are there to be seen. */
  draw() {
    if (!$("sessions").open) return;
    const { first, last } = this.ends;
    const many = last - first + 1 > 2 * NEAR;
    this.whole.draw(this.lines, [first, last], this.selected);
    $("near").hidden = !many;
    if (!many) return;
    const from = Math.max(first, Math.min(last - NEAR + 1, this.selected - NEAR / 2));
    const near = this.lines.filter((line) => line.number >= from && line.number < from + NEAR);
    this.near.draw(near, [from, from + NEAR - 1], this.selected);
  }
}

async function sessions(part, from, to) {
  return (await ask(part, `sessions?from=${from}&to=${to}`))?.map(named) ?? null;
}
