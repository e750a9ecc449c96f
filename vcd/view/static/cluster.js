// The first answer of the page: what is free, on how many nodes, and how many jobs wait.

import { stateOf } from "./jobs.js";
import { amount, counted, el, inOrder, piece, resourceName, span } from "./words.js";

/** The resources that pods use, or ask for in a queue, but for their mere number. */
export function wantedResources({ nodes, queues }) {
  const amounts = [...nodes.map((node) => node.used), ...queues.map((queue) => queue.amounts?.request ?? {})];
  const found = new Set(amounts.flatMap((each) => Object.keys(each).filter((name) => each[name] && name !== "pods")));
  return inOrder(found);
}

const free = (node, resource) => Math.max(0, (node.allocatable[resource] ?? 0) - (node.used[resource] ?? 0));
const sum = (nodes, kind, resource) => nodes.reduce((total, node) => total + (node[kind][resource] ?? 0), 0);

/** Draw the tiles; ``now`` (ns) is the time that waits last until. */
export function drawCluster(list, overview, now) {
  const { nodes, withheld = [], time } = overview;
  if (!time) return list.replaceChildren(tile("reading the log"));
  const tiles = nodes.length ? [freeTile(overview), nodesTile(nodes)] : [];
  if (!nodes.length && !withheld.length) tiles.push(tile("no nodes", "no job can run"));
  tiles.push(...jobTiles(overview, now));
  if (nodes.length) tiles.push(useTile(overview));
  list.replaceChildren(...tiles);
}

function jobTiles({ jobs, pods }, now) {
  const of = (state) => jobs.filter((job) => stateOf(job) === state);
  const [waiting, running] = [of("waiting"), of("running")];
  const oldest = Math.min(...waiting.map((job) => job.since));
  const ofPods = (status) => (pods[status] ? `${counted(pods[status], "pod")} ${status.toLowerCase()}` : "");
  return [
    tile(`${counted(waiting.length, "job")} waiting`, waiting.length && `longest for ${span((now - oldest) / 1e6)}`, ofPods("Pending")),
    tile(`${counted(running.length, "job")} running`, ...Object.keys(pods).filter((status) => status !== "Pending").map(ofPods)),
  ];
}

function tile(title, ...details) {
  const parts = details.filter(Boolean).map((text) => (typeof text === "string" ? el("small", {}, text) : text));
  return el("li", {}, el("strong", {}, title), ...parts);
}

function freeTile({ nodes, resource }) {
  const [total, used] = [sum(nodes, "allocatable", resource), sum(nodes, "used", resource)];
  const name = resourceName(resource);
  const ready = nodes.filter((node) => node.ready);
  const largest = Math.max(0, ...ready.map((node) => free(node, resource)));
  const holders = ready.filter((node) => free(node, resource) === largest);
  const where = holders.length === 1 ? holders[0].name : `${holders.length.toLocaleString("en")} nodes`;
  const block = largest ? `largest free block: ${amount(resource, largest)} on ${where}` : `no ready node has ${name} free`;
  const bar = el("div", { className: "bar", "aria-hidden": "true" }, piece("allocated", 0, total ? Math.min(1, used / total) : 0));
  return tile(`${amount(resource, Math.max(0, total - used))} of ${amount(resource, total)} ${name} free`, bar, block);
}

function nodesTile(nodes) {
  const lost = nodes.filter((node) => !node.ready).map((node) => node.name);
  const named = lost.length > 3 ? `${lost.slice(0, 3).join(", ")} and ${lost.length - 3} more` : lost.join(", ");
  const ready = (nodes.length - lost.length).toLocaleString("en");
  return tile(`${ready} of ${counted(nodes.length, "node")} ready`, lost.length ? `not ready: ${named}` : "");
}

function useTile(overview) {
  const lines = wantedResources(overview).map((resource) => {
    const [used, total] = [sum(overview.nodes, "used", resource), sum(overview.nodes, "allocatable", resource)];
    const part = total ? Math.round((100 * used) / total) : 100;
    return el("small", {}, `${resourceName(resource)} ${amount(resource, used)} of ${amount(resource, total)} (${part} %)`);
  });
  return tile("in use", ...(lines.length ? lines : ["nothing"]));
}
