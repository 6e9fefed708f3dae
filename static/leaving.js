/* A page is not left for one that can't be reached. Where nothing tells that the server is there, a link or a form first
   asks whether anybody answers: while the browser is offline, while the event stream is lost, and on a page without one
   that heard nothing for a while. Otherwise it goes at once. */
"use strict";

const ANSWER_MS = 3000;
const TRUSTED_MS = 2000; // after an answer, what waited for it may go
const HEARD_MS = 1000; // for so long after a page or a part of it has come, nobody asks
let answeredAt = -Infinity; // when somebody last asked, and was answered
let heardAt = 0; // the page itself is a sign of life

function isDoubtful() {
  const now = performance.now();
  if (navigator.onLine === false || ["reconnecting", "offline"].includes(stream.state)) return now - answeredAt > TRUSTED_MS;
  return !stream.isOpen && now - answeredAt > TRUSTED_MS && now - heardAt > HEARD_MS;
}

async function leaveIfReachable(leave) {
  try {
    const answer = await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if ([502, 504].includes(answer.status)) throw new Error("a proxy answers for a server that does not");
  } catch {
    showToast("toast-unreachable");
    return;
  }
  answeredAt = performance.now();
  leave();
}

function onLink(event) {
  const link = event.target instanceof Element && event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute("download") || link.origin !== location.origin || link.getAttribute("href").startsWith("#")) return;
  if (!isDoubtful()) return;
  event.preventDefault();
  leaveIfReachable(() => location.assign(link.href));
}

/* Before all others hear of it: a form that is sent once would count as sent. Those of htmx stay on the page anyway. */
function onForm(event) {
  const form = event.target;
  if (form.method === "dialog" || form.hasAttribute("hx-post") || form.hasAttribute("hx-get") || !isDoubtful()) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const button = event.submitter;
  leaveIfReachable(() => form.requestSubmit(button));
}

document.addEventListener("click", onLink);
document.addEventListener("htmx:after:request", () => { heardAt = performance.now(); });
window.addEventListener("submit", onForm, true);
window.addEventListener("pageshow", (event) => { heardAt = event.persisted ? -Infinity : performance.now(); });
