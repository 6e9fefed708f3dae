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

/* One that the page brought along, for when no server answers: #toast-trouble or #toast-unreachable. Never two of one kind. */
function showToast(id) {
  const region = document.getElementById("toasts");
  const template = document.getElementById(id);
  if (!region || !template || region.querySelector(`[data-of="${id}"]`)) return;
  const toast = template.content.firstElementChild.cloneNode(true);
  toast.dataset.of = id;
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
  if (time.dataset.local || time.dataset.at || !time.dateTime.includes("T") || Number.isNaN(at.getTime())) return;
  time.dataset.local = "yes";
  time.title += `\n${at.toLocaleString(undefined, { timeZone })} where you are`;
}

/* The server says exact times in UTC, and keeps that in the title. Here they become those of the reader's clock. */
const twoDigits = (number) => String(number).padStart(2, "0");

/* The zone that somebody chose in their settings; the browser's own without one. */
const timeZone = document.documentElement.dataset.timeZone || undefined;
const clockParts = new Intl.DateTimeFormat("en-GB", {
  timeZone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

function localTime(at, form) {
  const there = Object.fromEntries(clockParts.formatToParts(at).map((part) => [part.type, part.value]));
  const hour = `${there.hour}:${there.minute}`;
  if (form === "hour") return hour;
  const clock = form === "minutes" ? hour : `${hour}:${there.second}`;
  if (form === "clock") { // it stands under a heading with its day in UTC
    const day = at.toLocaleDateString("en-GB", { timeZone, day: "numeric", month: "short" });
    return Number(there.day) === at.getUTCDate() ? clock : `${day} ${clock}`;
  }
  return `${there.year}-${there.month}-${there.day} ${clock}`;
}

function zoneName(at) {
  const parts = new Intl.DateTimeFormat("en", { timeZone, timeZoneName: "short" }).formatToParts(at);
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "";
}

function localizeTimes() {
  document.querySelectorAll("time[data-at]").forEach((time) => {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime()) || at.getTimezoneOffset() === 0) return;
    const form = time.dataset.at;
    const words = form === "clock" ? localTime(at, form) : `${localTime(at, form)} ${zoneName(at)}`;
    if (time.textContent === words) return;
    const zone = document.createElement("span");
    zone.className = "zone";
    zone.textContent = zoneName(at);
    time.replaceChildren(...(form === "clock" ? [words] : [`${localTime(at, form)} `, zone]));
  });
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

/* What goes on while the page is open: the seconds of the server, counted on. */
const counted = new WeakMap();

function durationText(seconds) {
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  const two = (number) => String(number).padStart(2, "0");
  return minutes < 60 ? `${minutes} min ${two(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

function countOn() {
  document.querySelectorAll("[data-running]").forEach((sign) => {
    const said = sign.dataset.running;
    if (counted.get(sign)?.said !== said) counted.set(sign, { said, at: performance.now() - Number(said) * 1000 });
    const text = durationText(Math.floor((performance.now() - counted.get(sign).at) / 1000));
    if (sign.textContent !== text) sign.textContent = text;
  });
}

/* The last row of a live list stays in sight as new ones come, until somebody scrolls away from it. */
let isFollowing = false;

function noteFollowing() {
  const box = document.querySelector("[data-follow] > :last-child")?.getBoundingClientRect();
  isFollowing = Boolean(box) && box.top < window.innerHeight && box.bottom > 0;
}

function followRows() {
  if (isFollowing) document.querySelector(".step-rows > :last-child")?.scrollIntoView({ block: "nearest" });
  isFollowing &&= Boolean(document.querySelector("[data-follow]"));
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
const stream = { connection: null, heard: 0, state: "idle", isOpen: false, timer: null };

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
    stream.isOpen = false;
    if (connection.attempt > 0 && stream.state === "live") setStream("reconnecting", 2500); // a short gap is no news
  });
  onStream("htmx:sse:after:connection", ({ connection }) => {
    stream.connection = connection;
    stream.heard = Date.now();
    stream.isOpen = true;
    setStream("live");
  });
  onStream("htmx:sse:before:message", () => {
    stream.heard = Date.now();
    if (stream.state !== "live") setStream("live"); // a browser that was offline may keep its connection
  });
  onStream("htmx:sse:error", ({ connection }) => {
    stream.isOpen = false;
    setStream(navigator.onLine === false || connection?.attempt >= 3 ? "offline" : "reconnecting");
  });
  onStream("htmx:sse:close", ({ reason }, element) => {
    stream.connection = null;
    stream.isOpen = false;
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
    if (!isStream(event) && !event.detail.ctx.text?.includes("#toasts") && event.detail.ctx.response.status !== 422) showToast("toast-trouble");
  });
  document.addEventListener("htmx:error", (event) => { if (!isStream(event)) showToast("toast-trouble"); });
}

/* Clicks, delegated, so that what arrives later works too. */
const COPIES = "[data-copy], [data-copy-text]"; // the text of another element, or a text of their own

async function copyText(button) {
  const source = button.dataset.copy && document.querySelector(button.dataset.copy);
  await navigator.clipboard.writeText(button.dataset.copyText ?? source.value ?? source.textContent.trim());
  const label = button.ariaLabel;
  button.classList.add("copied");
  button.ariaLabel = "Copied";
  setTimeout(() => { button.classList.remove("copied"); button.ariaLabel = label; }, 1500);
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
  if (hit(COPIES)) copyText(hit(COPIES));
  document.querySelectorAll("details.menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
}

/* The box in a table's head checks all of its rows. */
function onChange(event) {
  const all = event.target instanceof Element && event.target.closest("[data-check-all]");
  keepMatching(event.target);
  if (all) all.closest("form").querySelectorAll(`input[name="${all.dataset.checkAll}"]`).forEach((box) => { box.checked = all.checked; });
  countSelected();
}

/* The box for all that match checks every row; who unchecks a row no longer means all. */
function keepMatching(box) {
  const bar = box.form?.querySelector("[data-selection]");
  const matching = bar?.querySelector("[data-matching]");
  if (box === matching) box.form.querySelectorAll(`input[name="${bar.dataset.selection}"]`).forEach((each) => { each.checked = box.checked; });
  else if (matching && !box.checked) matching.checked = false;
}

/* The acts on a selection show only when something is selected, with the count. */
function countSelected() {
  document.querySelectorAll("[data-selection]").forEach((bar) => {
    const name = bar.dataset.selection;
    const boxes = [...bar.closest("form").querySelectorAll(`input[name="${name}"]`)];
    const matching = bar.querySelector("[data-matching]:checked");
    const count = matching ? Number(matching.dataset.matching) : boxes.filter((box) => box.checked).length;
    const sign = bar.querySelector("[role=status]");
    const words = count ? `${count.toLocaleString("en")} selected` : bar.dataset.none;
    if (sign.textContent !== words) sign.textContent = words;
    bar.dataset.selected = count;
    const all = bar.closest("form").querySelector(`[data-check-all="${name}"]`);
    if (all) Object.assign(all, { checked: count > 0 && count >= boxes.length, indeterminate: count > 0 && count < boxes.length });
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
  if (navigator.clipboard) document.querySelectorAll(COPIES).forEach((button) => { button.hidden = false; });
}

function start() {
  applyTheme(storedTheme());
  watchToasts();
  freshenTimes();
  localizeTimes();
  unhideCopyButtons();
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  setInterval(freshenTimes, 5000);
  countDown();
  setInterval(countDown, 500);
  countOn();
  setInterval(countOn, 1000);
  isFollowing = window.scrollY === 0 && Boolean(document.querySelector("[data-follow]"));
  document.addEventListener("scroll", noteFollowing, { passive: true });
  document.addEventListener("visibilitychange", countDown);
  document.querySelectorAll("[data-counter]").forEach(countTyped);
  const region = document.getElementById("toasts");
  if (region) new MutationObserver(watchToasts).observe(region, { childList: true });
  document.addEventListener("click", onClick);
  document.addEventListener("change", onChange);
  document.addEventListener("input", (event) => { if (event.target.matches?.("[data-counter]")) countTyped(event.target); });
  document.addEventListener("keydown", onEscape);
  document.addEventListener("keydown", onEnterInBox);
  window.addEventListener("pageshow", countSelected); // a page from the back button comes with its boxes checked
  countSelected();
  document.addEventListener("mouseover", (event) => {
    if (event.target instanceof HTMLTimeElement) addLocalTime(event.target);
  });
  document.addEventListener("htmx:after:swap", () => { freshenTimes(); localizeTimes(); unhideCopyButtons(); countDown(); countOn(); countSelected(); followRows(); });
  watchRequests();
}

/* Listeners that must be there before htmx starts: its first connection is made as soon as the page is parsed. */
watchStream();
document.addEventListener("DOMContentLoaded", start);
