// @ts-check
// Keeps a page up to date. The server says over a stream that something has changed; the page is then fetched again, and what
// differs is put in its place, so that the focus, the selection and the scroll positions stay. Without this module the pages show the same.

/**
 * The steps that make an element like another, and leave alone what is alike.
 * @param {Element} old
 * @param {Element} now
 * @returns {Generator<undefined, void>}
 */
function* steps(old, now) {
  if (old.isEqualNode(now)) return;
  for (const { name } of Array.from(old.attributes)) {
    if (!now.hasAttribute(name) && !(old.tagName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of Array.from(now.attributes)) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old instanceof HTMLInputElement || old instanceof HTMLSelectElement) return; // a person may be writing there
  /** @type {Map<string, Element>} */
  const named = new Map();
  for (const child of Array.from(old.children)) if (child.id) named.set(child.id, child);
  let at = old.firstChild;
  for (const want of Array.from(now.childNodes)) {
    yield;
    const known = want instanceof Element && want.id ? named.get(want.id) : undefined;
    if (known && want instanceof Element) {
      if (known !== at) old.insertBefore(known, at);
      else at = at.nextSibling;
      yield* steps(known, want);
      continue;
    }
    const same = at && at.nodeType === want.nodeType && at.nodeName === want.nodeName && !(at instanceof Element && at.id);
    if (!at || !same) {
      old.insertBefore(document.importNode(want, true), at);
      continue;
    }
    const next = at.nextSibling;
    if (at instanceof Element && want instanceof Element) yield* steps(at, want);
    else if (at.nodeValue !== want.nodeValue) at.nodeValue = want.nodeValue;
    at = next;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const slice = 8; // milliseconds of work, after which a key that was pressed meanwhile is answered

/**
 * Makes an element like another, a slice of the work at a time.
 * @param {Element} old
 * @param {Element} now
 */
export async function morph(old, now) {
  const work = steps(old, now);
  for (let end = performance.now() + slice; !work.next().done;) {
    if (performance.now() < end) continue;
    await new Promise((go) => { window.setTimeout(go); });
    end = performance.now() + slice;
  }
}

const main = document.getElementById("main");
const status = document.getElementById("live");
const pace = 1000; // at most one look at the server in that many milliseconds, and longer if a look takes long

/** @type {EventSource | null} */
let source = null;
let cursor = "";
let looked = 0, looking = false, again = false, missed = false;
/** @type {number | undefined} */
let timer;

/** @param {string} text */
function say(text) {
  if (status && status.textContent !== text) status.textContent = text;
}

/** Looks soon, and once however often it is called. */
function soon() {
  if (looking) again = true;
  else if (timer === undefined) timer = window.setTimeout(look, Math.max(0, looked + pace - performance.now()));
}

async function look() {
  timer = undefined;
  if (!main) return;
  missed = document.hidden; // and made up for when the page is shown again
  if (missed) return;
  looking = true;
  again = false;
  let failed = true;
  const began = performance.now();
  try {
    const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
    if (answer.status === 401) {
      failed = false;
      return say("this e3 ui has ended; start it again");
    }
    if (answer.status >= 500) return say("the repository does not answer; trying again");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = page.getElementById("main");
    failed = false;
    if (!now) return;
    const log = main.querySelector(".log");
    const atEnd = !!log && log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    now.removeAttribute("data-stream");
    const stream = main.getAttribute("data-stream");
    await morph(main, now);
    if (stream) main.setAttribute("data-stream", stream);
    document.title = page.title;
    if (source && source.readyState === EventSource.OPEN) say("live");
    const grown = main.querySelector(".log[data-tail=yes]");
    if (grown && atEnd) grown.scrollTop = grown.scrollHeight;
    performance.measure("e3 update", { start: began });
  } catch {
    say("no answer; trying again");
  } finally {
    looking = false;
    looked = performance.now() + (failed ? 3000 : Math.min(4 * (performance.now() - began), 10000));
    if (again || failed) soon();
  }
}

function close() {
  if (source) source.close();
  source = null;
}

function open() {
  const stream = main && main.getAttribute("data-stream");
  if (!stream || source || document.hidden) return;
  const url = new URL(stream, location.href);
  if (cursor) url.searchParams.set("after", cursor);
  source = new EventSource(url);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("change", (e) => {
    if (e instanceof MessageEvent && e.lastEventId) cursor = e.lastEventId;
    soon();
  });
  source.addEventListener("error", () => {
    say("no connection; trying again");
    if (source && source.readyState === EventSource.CLOSED) {
      close();
      window.setTimeout(open, 3000);
    }
  });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    close();
    say("");
  } else {
    open();
    if (missed) soon();
  }
});
addEventListener("pagehide", close);
addEventListener("pageshow", open);

const log = document.querySelector(".log[data-tail=yes]");
if (log && !location.hash) log.scrollTop = log.scrollHeight;

document.addEventListener("click", async (e) => {
  const copy = e.target instanceof HTMLElement && e.target.closest(".copy");
  if (!copy || !navigator.clipboard) return;
  await navigator.clipboard.writeText(copy.parentElement?.querySelector("code")?.textContent ?? "");
  copy.textContent = "copied";
  window.setTimeout(() => { copy.textContent = "copy"; }, 1500);
});
