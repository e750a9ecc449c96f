// Elements, amounts and times: what each part of the page is made of. Names in a cluster are anybody's input: they enter the page as text only.

/** An element with properties and children; strings become text, never markup. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

const STEPS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/** How many of the log's units make one of a resource: pods and bytes are whole, all else is in thousandths. */
const unit = (resource) => (resource === "memory" || resource === "pods" ? 1 : 1000);

const isBytes = (resource) => /^(memory|ephemeral-storage|hugepages-.*)$/.test(resource);

/** An amount for people: 1500 of cpu is 1.5, 2**31 of memory is 2Gi. */
export function amount(resource, value) {
  let count = value / unit(resource);
  let step = 0;
  while (isBytes(resource) && Math.abs(count) >= 1024 && step < STEPS.length - 1) {
    count /= 1024;
    step += 1;
  }
  return `${count.toLocaleString("en", { maximumFractionDigits: count >= 100 ? 0 : 2 })}${STEPS[step]}`;
}

/** 2026-01-01 00:00:05 in UTC, of milliseconds since the epoch. */
export function moment(milliseconds) {
  return new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ");
}

/** A length of time in its two largest units, without one that is zero; milliseconds. */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const [minutes, hours, days] = [60, 3600, 86400].map((size) => Math.floor(seconds / size));
  if (days) return units([days, "d"], [hours % 24, "h"]);
  if (hours) return units([hours, "h"], [minutes % 60, "min"]);
  return minutes ? units([minutes, "min"], [seconds % 60, "s"]) : `${seconds} s`;
}

const units = (...parts) => parts.filter(([count]) => count).map((part) => part.join(" ")).join(" ");

/** "1 bind", "3 binds". */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** cpu and memory first, then by name. */
export function inOrder(resources) {
  const rank = (name) => ["cpu", "memory"].indexOf(name) + 1 || 3;
  return [...resources].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en"));
}

/** How a resource is called: GPU for nvidia.com/gpu, others by their own names. */
export const resourceName = (resource) => (resource.endsWith(".com/gpu") ? "GPU" : resource);

/** A piece of a bar: where it begins and how long it is, as parts of the whole. */
export function piece(name, from, size) {
  const made = el("i", { className: name });
  made.style.setProperty("--from", from);
  if (size != null) made.style.setProperty("--size", Math.max(0, size));
  return made;
}
