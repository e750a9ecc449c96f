// The nodes as a grid of cells, coloured by use.

import { wantedResources } from "./cluster.js";
import { amount, counted, el, inOrder, resourceName } from "./words.js";

const LEVELS = ["empty", "to 25 %", "to 50 %", "to 75 %", "below 100 %", "full"];
const FEW = 40;
const HELP = "Arrow keys or the pointer choose a node; Enter or a click lists its pods.";

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

  /** Colour the nodes whose names have a text by the use of a resource, or ("") of the one that is scarcest on each. */
  draw(overview, resource, order, text) {
    const nodes = overview.nodes.filter((node) => node.name.includes(text.trim().toLowerCase()));
    this.resources = resource ? [resource] : wantedResources(overview);
    const use = (node) => scarcest(node, this.resources)?.part ?? 0;
    const chosen = this.nodes[this.at]?.name;
    this.nodes = order === "use" ? [...nodes].sort((a, b) => use(b) - use(a)) : nodes;
    while (this.cells.length < nodes.length) this.cells.push(el("div", { role: "option", id: `node-${this.cells.length}` }));
    this.cells.length = nodes.length;
    if (this.grid.childElementCount !== nodes.length) this.grid.replaceChildren(...this.cells);
    const counts = this.#colour(nodes.length <= FEW);
    this.#drawKey(counts, nodes.filter((node) => !node.ready).length);
    this.at = this.nodes.findIndex((node) => node.name === chosen);
    this.cells.forEach((cell, index) => cell.setAttribute("aria-selected", String(index === this.at)));
    this.line.textContent = this.at >= 0 ? this.#words(this.nodes[this.at]) : nodes.length ? HELP : "no node";
  }

  /** Colour the cells, with names on them where there are few; return how many have each level of use. */
  #colour(few) {
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
    return counts;
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
        return `${resourceName(resource)} ${amount(resource, used)} of ${amount(resource, room)} (${Math.round((100 * used) / room)} %)`;
      });
    const most = this.resources.length > 1 ? scarcest(node, this.resources) : null;
    const scarce = most?.part ? `, scarcest is ${resourceName(most.resource)}` : "";
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
