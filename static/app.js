/* The page's few manners: theme, toasts, fresh times, dialogs, and the event stream's state. Every page works without it. */
"use strict";

/* Theme: set before the first paint, so this file is loaded in the head and not deferred. */
const THEMES = ["auto", "light", "dark"];
const THEME_WORDS = { auto: "automatic", light: "light", dark: "dark" };

function storedTheme() {
  try {
    const theme = localStorage.getItem("theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto"; // storage may be forbidden
  }
}

function applyTheme(theme) {
  const root = document.documentElement;
  if (theme === "auto") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", theme);
  root.setAttribute("data-theme-choice", theme);
  document.querySelectorAll("[data-theme-toggle]").forEach((button) => {
    button.hidden = false;
    button.setAttribute("aria-label", `Theme: ${THEME_WORDS[theme]}`);
    button.title = `Theme: ${THEME_WORDS[theme]}`;
  });
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length];
  try {
    localStorage.setItem("theme", theme);
  } catch {
    /* it then holds for this page only */
  }
  applyTheme(theme);
}

applyTheme(storedTheme());
document.documentElement.classList.add("js");

/* A form that shows something once is sent once: the answer to a second click would take the place of it. */
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-once]")) return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent);
});

/* Toasts: fade after eight seconds, wait while somebody reads them. */
const TOAST_MS = 8000;

function watchToast(toast) {
  if (toast.dataset.toast !== "fade" || toast.dataset.watched) return;
  toast.dataset.watched = "yes";
  let timer;
  const start = () => { timer = setTimeout(() => toast.remove(), TOAST_MS); };
  const pause = () => clearTimeout(timer);
  const resume = () => { if (!toast.matches(":hover, :focus-within")) { pause(); start(); } };
  toast.addEventListener("mouseenter", pause);
  toast.addEventListener("focusin", pause);
  toast.addEventListener("mouseleave", resume);
  toast.addEventListener("focusout", () => setTimeout(resume));
  start();
}

function watchToasts() {
  document.querySelectorAll("#toasts .toast").forEach(watchToast);
}

function showTrouble() {
  const region = document.getElementById("toasts");
  const template = document.getElementById("toast-trouble");
  if (!region || !template || region.querySelector("[data-trouble]")) return;
  const toast = template.content.firstElementChild.cloneNode(true);
  toast.dataset.trouble = "yes";
  region.append(toast);
}

/* Times: the words of the server, kept true while the page stays open. */
const STEPS = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [Infinity, 86400, "d"]];

function agoText(then, now) {
  const seconds = Math.round((now - then) / 1000);
  const size = Math.abs(seconds);
  if (size < 5) return "just now";
  const [, unit, word] = STEPS.find(([limit]) => size < limit);
  const amount = `${Math.floor(size / unit)} ${word}`;
  return seconds < 0 ? `in ${amount}` : `${amount} ago`;
}

function freshenTimes() {
  const now = Date.now();
  document.querySelectorAll("time[data-ago]").forEach((time) => {
    const text = agoText(Date.parse(time.dateTime), now);
    if (time.textContent !== text) time.textContent = text;
  });
}

function addLocalTime(time) {
  const at = new Date(time.dateTime);
  if (time.dataset.local || !time.dateTime.includes("T") || Number.isNaN(at.getTime())) return;
  time.dataset.local = "yes";
  time.title += `\n${at.toLocaleString()} where you are`;
}

/* Live exceptions, above every page: counted down, and gone when their time is over. */
const endings = new WeakMap();

function leftText(seconds) {
  return seconds >= 120 ? `${Math.floor(seconds / 60)} min left` : `${seconds} s left`; // the words of the server
}

function countDown() {
  document.querySelectorAll("#my-exceptions [data-ends-in]").forEach((section) => {
    const said = section.dataset.endsIn;
    if (endings.get(section)?.said !== said) endings.set(section, { said, at: performance.now() + Number(said) });
    const seconds = Math.ceil((endings.get(section).at - performance.now()) / 1000);
    if (seconds <= 0) return section.remove();
    const words = section.querySelector("[data-left]");
    if (words.textContent !== leftText(seconds)) words.textContent = leftText(seconds);
  });
}

/* How much was typed into a field that has a limit. */
function countTyped(field) {
  const hint = document.getElementById(`${field.id}-hint`);
  if (!hint) return;
  hint.dataset.words ??= hint.textContent;
  hint.textContent = `${field.value.length} of ${field.maxLength} characters. ${hint.dataset.words.replace(/^[^.]*\. /, "")}`;
}

/* The event stream: one element with hx-sse:connect. While it is away, "stream:poll" lets live regions ask for themselves. */
const POLL_MS = 10000;
const SILENCE_MS = 45000; // the server beats every 15 s
const STATE_WORDS = { live: "live", reconnecting: "reconnecting…", offline: "offline", ended: "finished" };
const stream = { connection: null, heard: 0, state: "idle", timer: null };

function isStream(event) {
  return event.target instanceof Element && event.target.hasAttribute("hx-sse:connect");
}

function setStream(state, delay = 0) {
  clearTimeout(stream.timer);
  stream.timer = setTimeout(() => {
    stream.state = state;
    const sign = document.getElementById("stream-state");
    if (!sign) return;
    sign.hidden = state === "idle";
    sign.dataset.state = state;
    const word = sign.querySelector("[data-word]");
    if (word.textContent !== STATE_WORDS[state]) word.textContent = STATE_WORDS[state] || "";
  }, delay);
}

function onStream(name, handle) {
  document.addEventListener(name, (event) => { if (isStream(event)) handle(event.detail, event.target); });
}

function watchStream() {
  onStream("htmx:sse:before:connection", ({ connection }) => {
    stream.connection = connection;
    if (connection.attempt > 0 && stream.state === "live") setStream("reconnecting", 2500); // a short gap is no news
  });
  onStream("htmx:sse:after:connection", ({ connection }) => {
    stream.connection = connection;
    stream.heard = Date.now();
    setStream("live");
  });
  onStream("htmx:sse:before:message", () => {
    stream.heard = Date.now();
    if (stream.state !== "live") setStream("live"); // a browser that was offline may keep its connection
  });
  onStream("htmx:sse:error", ({ connection }) => {
    setStream(navigator.onLine === false || connection?.attempt >= 3 ? "offline" : "reconnecting");
  });
  onStream("htmx:sse:close", ({ reason }, element) => {
    stream.connection = null;
    if (reason === "message") {
      setStream("ended");
      element.remove(); // or its trigger would open it again
    }
    else setStream(reason === "ended" ? "offline" : "idle");
  });
  onStream("htmx:error", () => setStream("offline"));
  onStream("htmx:response:error", () => setStream("offline"));
  window.addEventListener("offline", () => { if (stream.connection) setStream("offline"); });
  window.addEventListener("online", () => stream.connection?.delayCanceller?.());
  setInterval(reopenSilentStream, 5000);
  setInterval(pollWhileAway, POLL_MS);
}

/* A sleeping laptop or a proxy can hold a dead connection open for hours: silence ends it, and the stream resumes. */
function reopenSilentStream() {
  if (stream.state !== "live" || document.hidden || Date.now() - stream.heard < SILENCE_MS) return;
  stream.heard = Date.now();
  stream.connection?.reader?.cancel();
}

function pollWhileAway() {
  if (document.hidden || !["reconnecting", "offline"].includes(stream.state)) return;
  document.body.dispatchEvent(new CustomEvent("stream:poll"));
}

/* Requests: hx-confirm asks in our own dialog; a server that does not answer, or answers in no way of ours, is said aloud. */
function watchRequests() {
  document.addEventListener("htmx:confirm", (event) => {
    const { ctx, issueRequest, dropRequest } = event.detail;
    const dialog = document.getElementById("confirm");
    if (!ctx.confirm || !dialog) return;
    event.preventDefault();
    dialog.querySelector("#confirm-text").textContent = ctx.confirm;
    dialog.querySelector("#confirm-yes").textContent = ctx.sourceElement.dataset.confirmYes || "Go on";
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => (dialog.returnValue === "yes" ? issueRequest() : dropRequest()), { once: true });
    dialog.showModal();
  });
  document.addEventListener("htmx:response:error", (event) => {
    if (!isStream(event) && !event.detail.ctx.text?.includes("#toasts") && event.detail.ctx.response.status !== 422) showTrouble();
  });
  document.addEventListener("htmx:error", (event) => { if (!isStream(event)) showTrouble(); });
}

/* Clicks, delegated, so that what arrives later works too. */
async function copyText(button) {
  const source = document.querySelector(button.dataset.copy);
  await navigator.clipboard.writeText(source.value ?? source.textContent.trim());
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1500);
}

function onClick(event) {
  const hit = (selector) => event.target instanceof Element && event.target.closest(selector);
  const opener = hit("[data-dialog]");
  if (opener) {
    event.preventDefault();
    document.getElementById(opener.dataset.dialog)?.showModal();
  }
  if (hit("[data-close]")) hit("[data-close]").closest("dialog")?.close();
  if (hit("[data-dismiss]")) hit("[data-dismiss]").closest(".toast")?.remove();
  if (hit("[data-theme-toggle]")) nextTheme();
  if (hit("[data-copy]")) copyText(hit("[data-copy]"));
  document.querySelectorAll("details.menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
}

/* The keyboard goes on where it was: a button that goes with its row leaves the focus to the same button of the next one. */
let pressed = null;

function notePressed(event) {
  const button = event.detail === 0 && event.target instanceof Element && event.target.closest("form[hx-post] button");
  const section = button && button.closest("section[id]");
  pressed = section ? { button, section: section.id, place: alike(section, button).indexOf(button) } : null;
}

function alike(section, button) {
  const words = button.textContent.trim();
  return [...section.querySelectorAll("button")].filter((each) => each.textContent.trim() === words);
}

function keepFocus() {
  if (!pressed || pressed.button.isConnected || document.activeElement !== document.body) return;
  const { button, section, place } = pressed;
  const left = alike(document.getElementById(section) || document.body, button);
  (left[Math.min(place, left.length - 1)] || document.getElementById("main")).focus();
  pressed = null;
}

/* The box in a table's head checks all of its rows. */
function onChange(event) {
  const all = event.target instanceof Element && event.target.closest("[data-check-all]");
  if (all) all.closest("form").querySelectorAll(`input[name="${all.dataset.checkAll}"]`).forEach((box) => { box.checked = all.checked; });
  countSelected();
}

/* The acts on a selection show only when something is selected, with the count. */
function countSelected() {
  document.querySelectorAll("[data-selection]").forEach((bar) => {
    const name = bar.dataset.selection;
    const boxes = [...bar.closest("form").querySelectorAll(`input[name="${name}"]`)];
    const count = boxes.filter((box) => box.checked).length;
    const sign = bar.querySelector("[role=status]");
    const words = count ? `${count} selected` : bar.dataset.none;
    if (sign.textContent !== words) sign.textContent = words;
    bar.dataset.selected = count;
    const all = bar.closest("form").querySelector(`[data-check-all="${name}"]`);
    if (all) Object.assign(all, { checked: count > 0 && count === boxes.length, indeterminate: count > 0 && count < boxes.length });
  });
}

/* Enter on a box would press the first button of its form. Space checks it. */
function onEnterInBox(event) {
  if (event.key === "Enter" && event.target.matches?.("[type=checkbox], [type=radio]")) event.preventDefault();
}

function onEscape(event) {
  if (event.key !== "Escape") return;
  document.querySelectorAll("details.menu[open]").forEach((menu) => {
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}

function unhideCopyButtons() {
  if (navigator.clipboard) document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
}

function start() {
  applyTheme(storedTheme());
  watchToasts();
  freshenTimes();
  unhideCopyButtons();
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  setInterval(freshenTimes, 5000);
  countDown();
  setInterval(countDown, 500);
  document.addEventListener("visibilitychange", countDown);
  document.querySelectorAll("[data-counter]").forEach(countTyped);
  const region = document.getElementById("toasts");
  if (region) new MutationObserver(watchToasts).observe(region, { childList: true });
  document.addEventListener("click", onClick);
  document.addEventListener("click", notePressed);
  document.addEventListener("change", onChange);
  document.addEventListener("input", (event) => { if (event.target.matches?.("[data-counter]")) countTyped(event.target); });
  document.addEventListener("keydown", onEscape);
  document.addEventListener("keydown", onEnterInBox);
  window.addEventListener("pageshow", countSelected); // a page from the back button comes with its boxes checked
  countSelected();
  document.addEventListener("mouseover", (event) => {
    if (event.target instanceof HTMLTimeElement) addLocalTime(event.target);
  });
  document.addEventListener("htmx:after:swap", () => { freshenTimes(); unhideCopyButtons(); countDown(); countSelected(); keepFocus(); });
  watchRequests();
}

/* Listeners that must be there before htmx starts: its first connection is made as soon as the page is parsed. */
watchStream();
document.addEventListener("DOMContentLoaded", start);
