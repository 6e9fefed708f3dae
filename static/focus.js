/* Where the keyboard goes on: at the heading of a new page, and after an act at the row that it changed. */
"use strict";

const FOCUSABLE = "a[href], button:not([disabled]), input, select, textarea, summary, [tabindex]";

function focusOn(element) {
  if (!element) return;
  if (!element.matches(FOCUSABLE)) element.tabIndex = -1;
  element.focus({ preventScroll: element.matches("h1") });
}

/* Of a page that was reached from another one of ours. What the page itself asks for goes first: a field, or a place in it. */
function focusHeading() {
  const [navigation] = performance.getEntriesByType("navigation");
  const isOurs = document.referrer.startsWith(`${location.origin}/`);
  if (!isOurs || navigation?.type === "reload" || location.hash || document.querySelector("main [autofocus]")) return;
  if (document.activeElement === document.body) focusOn(document.querySelector("main h1"));
}

/* What was pressed last, where it stood, and which of its like it was there. An Undo in a toast belongs to the act before it. */
let pressed = null;

function notePressed(event) {
  const button = event.target instanceof Element && event.target.closest("form[hx-post] button");
  if (!button) return;
  if (button.closest(".toast")) {
    pressed = { ...pressed, button };
    return;
  }
  const row = button.closest("tr[id], li[id], article[id]");
  const section = button.closest("section[id]");
  pressed = { button, row: row?.id, section: section?.id, place: section ? alike(section, button).indexOf(button) : 0 };
}

function alike(section, button) {
  const words = button.textContent.trim();
  return [...section.querySelectorAll("button")].filter((each) => each.textContent.trim() === words);
}

/* Its row, as it is now; else the same button of the row that took its place; else the page. */
function keepFocus() {
  if (!pressed || pressed.button.isConnected || document.activeElement !== document.body) return;
  const { button, row, section, place } = pressed;
  const changed = row && document.getElementById(row);
  if (changed) return focusOn(alike(changed, button)[0] || changed.querySelector(FOCUSABLE) || changed);
  const left = alike(document.getElementById(section) || document.body, button);
  focusOn(left[Math.min(place ?? 0, left.length - 1)] || document.getElementById("main"));
}

document.addEventListener("DOMContentLoaded", focusHeading);
document.addEventListener("click", notePressed);
document.addEventListener("htmx:after:swap", keepFocus);
