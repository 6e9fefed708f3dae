/* A page is not left for one that can't be reached: while the browser is offline, or the event stream has lost the server,
   a link or a form first asks whether anybody answers. Otherwise it goes at once. */
"use strict";

const ANSWER_MS = 3000;
const TRUSTED_MS = 2000; // after an answer, what waited for it may go
let answeredAt = -Infinity;

function isDoubtful() {
  const lost = navigator.onLine === false || ["reconnecting", "offline"].includes(stream.state);
  return lost && performance.now() - answeredAt > TRUSTED_MS;
}

async function leaveIfReachable(leave) {
  try {
    await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
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
window.addEventListener("submit", onForm, true);
