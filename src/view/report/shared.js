"use strict";

// What the pages of runs and of evaluations have in common: elements, numbers as people say them, and trouble.

function make(tag, name, text) {
  const el = document.createElement(tag);
  if (name) el.className = name;
  if (text !== undefined) el.textContent = text;
  return el;
}

/** Puts a text into an element, with a remark where a part of it is missing. */
function put(el, text, nodes = (part) => [part]) {
  if (!Array.isArray(text)) {
    el.replaceChildren(...nodes(text));
    return;
  }
  const [head, missing, tail, place] = text;
  const remark = make("span", "cut", `\u2026 ${size(missing)} left out here; all of it is in ${place} \u2026`);
  el.replaceChildren(...nodes(head + "\n"), remark, ...nodes("\n" + tail));
}

/** A text that may have been cut, as one string. */
function whole(text) {
  return Array.isArray(text) ? text[0] + "\n" + text[2] : text || "";
}

/** A time as people say it. */
function time(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 100000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 7200000) return `${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`;
  return `${Math.floor(ms / 3600000)} h ${Math.floor(ms / 60000) % 60} min`;
}

function count(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function size(bytes) {
  if (bytes < 10000) return `${count(bytes)} bytes`;
  if (bytes < 1e7) return `${count(Math.round(bytes / 1000))} kB`;
  return `${count(Math.round(bytes / 1e6))} MB`;
}

function trouble(text) {
  const root = document.documentElement;
  root.dataset.trouble = String(Number(root.dataset.trouble || 0) + 1);
  document.body.prepend(make("div", "trouble", text));
}

addEventListener("error", (event) => trouble(`This page's script failed: ${event.message}`));
document.addEventListener("securitypolicyviolation", (event) => trouble(`The page's own security policy blocked a part of it: ${event.effectiveDirective} ${event.blockedURI}`));

function button(text, title, action) {
  const el = make("button", "", text);
  el.title = title;
  el.addEventListener("click", action);
  return el;
}
