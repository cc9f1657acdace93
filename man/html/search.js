// Search in the pages of this directory. The index is a script, so that a page opened from a file can load it.
"use strict";

const form = document.querySelector("form[role=search]");
const field = form.querySelector("input");
const list = form.querySelector("ol");
const MOST = 12;
let pages = [];
let pieces = [];
let isAsked = false;

form.hidden = false;

// search-index.js calls this with everything that can be found.
function searchIndex([somePages, somePieces]) {
  pages = somePages;
  pieces = somePieces.map(([page, anchor, heading, text]) => ({
    page, anchor, heading, text, lowHeading: heading.toLowerCase(), low: text.toLowerCase(),
    lowPage: pages[page][1].toLowerCase(),
  }));
  show();
  document.documentElement.dataset.ready = "";
}

function load() {
  if (isAsked) return;
  isAsked = true;
  const script = document.createElement("script");
  script.src = "search-index.js";
  document.head.append(script);
}

// How well a piece fits all words: 0 if one of them is missing.
function score(piece, words) {
  let sum = 0;
  for (const word of words) {
    const terms = piece.lowHeading.split(/[^a-z0-9_.@-]+/).map((part) => part.replace(/^-+/, ""));
    const wanted = word.replace(/^-+/, "") || word;
    // A heading says more about a word the fewer others it has.
    if (terms.includes(wanted)) sum += 10 + 6 / terms.length;
    else if (piece.lowHeading.includes(word)) sum += 6;
    else if (piece.low.includes(word)) sum += 1;
    else if (!piece.lowPage.includes(word)) return 0;
    if (piece.lowPage.includes(word)) sum += piece.anchor ? 2 : 20;
  }
  return sum;
}

// The words before and after the first place where a word is found, that word marked.
function excerpt(piece, words) {
  const line = document.createElement("span");
  const places = words.map((word) => piece.low.indexOf(word)).filter((at) => at >= 0);
  const at = places.length ? Math.min(...places) : 0;
  const from = at > 60 ? piece.text.indexOf(" ", at - 50) + 1 : 0;
  const part = piece.text.slice(from, from + 160);
  let rest = 0;
  const low = part.toLowerCase();
  while (rest < part.length) {
    const next = words.map((word) => [low.indexOf(word, rest), word.length]).filter(([at]) => at >= 0).sort((a, b) => a[0] - b[0])[0];
    if (!next) break;
    line.append(part.slice(rest, next[0]));
    const mark = document.createElement("mark");
    mark.textContent = part.slice(next[0], next[0] + next[1]);
    line.append(mark);
    rest = next[0] + next[1];
  }
  line.append(part.slice(rest), from + part.length < piece.text.length ? "…" : "");
  return line;
}

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length === 0 ? [] : pieces
    .map((piece) => [score(piece, words), piece])
    .filter(([points]) => points > 0)
    .sort((a, b) => b[0] - a[0])
    .slice(0, MOST);
  list.replaceChildren(...found.map(([, piece]) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const [file, title] = pages[piece.page];
    link.href = file + (piece.anchor ? "#" + piece.anchor : "");
    const name = document.createElement("b");
    name.textContent = title + (piece.heading ? ", " + piece.heading : "");
    link.append(name, excerpt(piece, words));
    item.append(link);
    return item;
  }));
  if (words.length && pieces.length && !found.length) {
    const item = document.createElement("li");
    item.className = "none";
    item.textContent = "Nothing found";
    list.append(item);
  }
}

field.addEventListener("focus", load);
field.addEventListener("input", show);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  list.querySelector("a")?.click();
});
// Arrows walk through what was found; Escape closes it.
form.addEventListener("keydown", (event) => {
  const stops = [field, ...list.querySelectorAll("a")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    stops[Math.max(0, Math.min(stops.length - 1, stops.indexOf(document.activeElement) + step))].focus();
  } else if (event.key === "Escape") {
    field.value = "";
    show();
    field.blur();
  }
});
list.addEventListener("click", () => {
  field.value = "";
  setTimeout(show);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(input|textarea)$/i.test(document.activeElement.tagName)) {
    event.preventDefault();
    field.focus();
  }
});
// A link may carry words to search for: index.html?q=budget
const asked = new URLSearchParams(location.search).get("q");
if (asked) {
  field.value = asked;
  load();
}
