/* Guards the content that is shown under an exception. It is in the page, but hidden, until the server has said once more that it
   may be seen; it is taken out of the page, for good, when the exception has ended or been taken back, when the server has not
   said so for a few seconds, and when the page is left. Only a reload brings content back, by another look. */
"use strict";

const ASK_MS = 1500;
const PATIENCE_MS = 4000;

const content = document.getElementById("content");
const waiting = document.getElementById("content-waiting");
const gone = document.getElementById("content-gone");
const guard = { endsAt: 0, confirmedAt: 0, askedAt: -Infinity, timer: null, ending: null };

function begin() {
  const navigation = performance.getEntriesByType("navigation")[0];
  setEnd((navigation?.requestStart ?? 0) + Number(content.dataset.endsIn)); // the server counted from no earlier than that
  guard.confirmedAt = performance.now();
  guard.timer = setInterval(check, 250);
  ask();
}

/* One timer for the moment itself: those that repeat are slowed down in a tab that nobody sees. */
function setEnd(moment) {
  guard.endsAt = guard.endsAt ? Math.min(guard.endsAt, moment) : moment;
  clearTimeout(guard.ending);
  guard.ending = setTimeout(check, Math.max(guard.endsAt - performance.now(), 0) + 1);
}

function check() {
  if (!content.isConnected) return;
  const now = performance.now();
  if (now >= guard.endsAt) clear("ended");
  else if (now - guard.confirmedAt > PATIENCE_MS) clear("lost");
  else if (now - guard.askedAt >= ASK_MS) ask();
}

/* Counts from the moment of the question: an answer says nothing of the time that it took. */
async function ask() {
  if (!content.isConnected) return;
  const asked = guard.askedAt = performance.now();
  try {
    const answer = await fetch(content.dataset.pulse, { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.status < 500 && !answer.ok) return clear("ended");
    const said = await answer.json();
    if (said.live === false) clear("ended");
    else if (said.live === true) confirm(asked, said.milliseconds_left);
  } catch {
    /* no answer: patience runs out */
  }
}

function confirm(asked, left) {
  guard.confirmedAt = Math.max(guard.confirmedAt, asked);
  setEnd(asked + left);
  check();
  waiting.remove();
  content.hidden = false;
}

function clear(reason) {
  if (!content.isConnected) return;
  clearInterval(guard.timer);
  clearTimeout(guard.ending);
  content.replaceChildren();
  content.remove();
  waiting.remove();
  gone.querySelector(`[data-reason="${reason}"]`).hidden = false;
  gone.hidden = false;
}

document.addEventListener("htmx:sse:after:message", ask); // there is news of an exception: perhaps of this one
document.addEventListener("visibilitychange", check);
document.addEventListener("freeze", () => clear("lost"));
window.addEventListener("pagehide", () => clear("lost")); // and so it is in no page that the browser keeps for its back button
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
begin();
