/* Keys of one letter: never while somebody types or a dialog is open, never with a modifier. The help switches them off. */
"use strict";

const GO_MS = 1500; // how long "g" waits for its second key
const ROWS = "main :is(tbody tr, .rows > li, .timeline > li, .worklist > ul > li)";
let wentAt = -Infinity;

const KEYS = {
  "/": focusSearch,
  "?": () => openHelp(),
  g: () => { wentAt = performance.now(); },
  j: () => moveInRows(1),
  k: () => moveInRows(-1),
  u: () => document.querySelector("#toasts .toast:last-child form button")?.click(),
};

function keysAreOn() {
  try {
    return localStorage.getItem("keys") !== "off";
  } catch {
    return true; // storage may be forbidden
  }
}

function switchKeys(event) {
  try {
    localStorage.setItem("keys", event.target.checked ? "on" : "off");
  } catch {
    event.target.checked = true; // it can't be remembered
  }
}

function isTyping(element) {
  return element.isContentEditable || element.matches?.("textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=submit])");
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]") || !keysAreOn()) return;
  const isSecond = performance.now() - wentAt < GO_MS;
  wentAt = -Infinity;
  const act = isSecond ? goTo(event.key) : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

/* By the link itself, so that whatever watches links sees it. */
function goTo(key) {
  const link = [...document.querySelectorAll(".mainnav [data-key]")].find((each) => each.dataset.key === key);
  return link && (() => link.click());
}

function focusSearch() {
  const field = document.querySelector("main [type=search]") || document.querySelector("main .filters :is(input, select)");
  field?.closest("details")?.setAttribute("open", "");
  field?.focus();
  field?.select?.();
}

function openHelp() {
  const help = document.getElementById("keys");
  help.querySelector("#keys-on").checked = keysAreOn();
  help.showModal();
}

/* The first link of each row, the next or the one before; Enter opens it. */
function moveInRows(step) {
  const links = [...document.querySelectorAll(ROWS)].map((row) => row.querySelector("a[href]")).filter((link) => link?.checkVisibility());
  const row = document.activeElement.closest(ROWS);
  const here = links.findIndex((link) => row?.contains(link));
  links[here < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(here + step, 0), links.length - 1)]?.focus();
}

document.addEventListener("keydown", onKey);
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-keys-help]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", openHelp);
  });
  document.getElementById("keys-on")?.addEventListener("change", switchKeys);
});
