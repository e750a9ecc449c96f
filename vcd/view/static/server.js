// Questions to the server, the token that they bear, and the errors that the header displays.

const $ = (id) => document.getElementById(id);
const running = {}; // the request under way for each part of the page; a newer one ends it
const errors = new Map(); // by part of the page, until it works again
let token = "";
let dialog = null;

/** An error that the server reported, or that it does not answer; the message is for the reader. */
export class Trouble extends Error {}

/** Return an answer of the server; null when a newer question for the same part came. Throws Trouble. */
export async function ask(part, path) {
  cancel(part);
  const mine = (running[part] = new AbortController());
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
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
    await requestToken(body.error);
    return ask(part, path);
  }
  if (answer.status === 403 && token) throw new Trouble(`${body.error}; reload the page to use another token`);
  if (!answer.ok) throw new Trouble(body.error);
  return body;
}

/** End the request under way for a part of the page. */
export const cancel = (part) => running[part]?.abort();

/** Whether the page waits for a token. */
export const needsToken = () => dialog !== null;

/** Whether a part of the page has an error. */
export const hasError = (part) => errors.has(part);

/** Do a part of the page's work, and report in the header what the server could not do. */
export async function reporting(part, work) {
  try {
    await work();
    errors.delete(part);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    errors.set(part, error.message);
  }
  $("status").textContent = [...new Set(errors.values())].join("; ");
}

/** Do work that one element reports on: it gets the sentence of an error. */
export async function orSay(element, work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    element.textContent = error.message;
  }
}

function requestToken(why) {
  dialog ??= new Promise((resolve) => {
    $("ask-why").textContent = why;
    $("ask").showModal();
    $("ask").addEventListener(
      "close",
      () => {
        token = $("token").value.trim();
        $("token").value = "";
        dialog = null;
        resolve();
      },
      { once: true },
    );
  });
  return dialog;
}
