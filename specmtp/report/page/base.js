"use strict";
// What all steps share: the ledger, elements made of text alone, words and their meaning, numbers, theory.

const ledger = JSON.parse(document.getElementById("ledger").textContent);
const byId = (id) => document.getElementById(id);

/** An element; children are elements or text, and text never becomes markup. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const NAMES = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "": "all others" };

/** A symbol as something that can be seen: spaces, controls and format characters get a name. */
function visible(symbol) {
  if (symbol in NAMES) return NAMES[symbol];
  return /^[\p{C}\p{Z}\p{M}]$/u.test(symbol) ? "U+" + symbol.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") : symbol;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const number = (value, digits) => (isNumber(value) ? value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1") : "–");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const count = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : "–");
const small = (value) => (isNumber(value) ? (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toFixed(4)) : "–");
const sum = (values) => values.reduce((total, value) => total + value, 0);
const withInterval = (value, low, high, digits) =>
  isNumber(value) ? number(value, digits) + (isNumber(low) && low !== high ? ` [${number(low, digits)}, ${number(high, digits)}]` : "") : "–";

const METHOD = { plain: "plain", draft: "draft model", mtp: "MTP", ngram: "n-gram lookup" };
const BACKEND = { eager: "eager", compile: "compiled", cudagraph: "CUDA graph", uncached: "without a cache" };

const TERMS = {
  "α": "Acceptance rate: drafts accepted ÷ drafts examined. Examined are all drafts up to and including the first rejection.",
  "γ": "How many tokens are drafted a round, before the target looks at them.",
  "c": "What one forward of the drafter costs, as a part of one forward of the target.",
  "p": "The target's distribution of the next symbol: the law that the text must follow.",
  "q": "The drafter's distribution of the next symbol, from which drafts are drawn.",
  "round": "Draft γ tokens, verify them in one forward of the target, keep what is accepted and add one token of the target's own.",
  "target": "The main model, whose text is wanted.",
  "drafter": "What guesses ahead: a small draft model, or the target's own MTP modules.",
  "tokens / forward": "Tokens emitted ÷ rounds: how many tokens one forward of the target yields. Plain decoding: 1.",
  "Σ min(p, q)": "The chance that a draft is accepted, from the two distributions; its mean over positions is what α estimates.",
  "total variation": "Half the sum of absolute differences of two distributions: 0 if equal, 1 if they never agree.",
  "speed-up": "Seconds of the fastest plain decoding ÷ seconds of this arm, paired within one run, with a 95 % interval.",
  "eq. (1)": "(1 − α^(γ+1)) ÷ (1 − α): tokens a forward if acceptances were independent (Leviathan et al. 2023).",
  "theory": "Theorem 3.8: eq. (1) ÷ (γ·c + 1), the speed-up if nothing but forwards took time.",
  "MTP": "Multi-token prediction: a module that reads the target's hidden state and the next token, and predicts the one after (DeepSeek-V3).",
  "λ": "The weight of the MTP loss in training: loss = main + λ · MTP.",
  "residual": "max(0, p − q), scaled to sum to 1: what a rejected draft is replaced from.",
  "law": "A distribution: how often each symbol comes out in the long run.",
  "forward": "One run of a network over its input. It gives a distribution of the next symbol at every place.",
  "logits": "The network's raw scores of the symbols, before they become probabilities.",
  "window": "How many positions a query of attention sees, itself included.",
};
let numTips = 0;

/** A word with its one-line definition, shown on hover, focus and tap. */
function term(word, shown = word) {
  const id = `tip-${++numTips}`, tip = el("span", { class: "tip", role: "tooltip", id }, TERMS[word]);
  const node = el("span", { class: "term", tabindex: "0", "aria-describedby": id }, shown, tip);
  // fixed, so that no table cuts it off
  const place = () => {
    const at = node.getBoundingClientRect(), width = Math.min(304, window.innerWidth - 16);
    Object.assign(tip.style, { width: `${width}px`, left: `${Math.max(8, Math.min(at.left, window.innerWidth - width - 8))}px`, top: `${at.bottom + 4}px` });
  };
  node.addEventListener("mouseenter", place);
  node.addEventListener("focus", place);
  return node;
}

/** Text in which {words in braces} are terms. */
const prose = (text) => text.split(/\{([^}]+)\}/).map((part, i) => (i % 2 ? term(...part.split("|")) : part));
const paragraph = (text, attributes = {}) => el("p", attributes, ...prose(text));
const figures = (...entries) => el("div", { class: "figures" }, entries.map(([value, name]) => el("div", {}, el("b", {}, value), el("span", {}, ...prose(name)))));

const expectedTokens = (alpha, gamma) => (alpha >= 1 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha));
const theorySpeedup = (alpha, gamma, c) => expectedTokens(alpha, gamma) / (gamma * c + 1);

const rows = ledger.rows;
const baseline = rows.find((row) => row.speedup && row.id === row.speedup.baseline) || rows[0];
const isSampled = (row) => !row.id.endsWith("_greedy");
/** Whether a row samples as the run does, with the usual accept rule. */
const isUsual = (row) => isSampled(row) && (row.rule || "token") === "token";
/** Whether a row samples as the run does and keeps the target's law, by whatever accept rule. */
const isLossless = (row) => isSampled(row) && row.lossless !== false;
/** All models by the name of their drafter. */
const models = { ...ledger.models, ...(ledger.models.named || {}) };
const closeup = ledger.closeup || { rounds: [], positions: [], samples: [] };
const methods = [...new Set(rows.map((row) => row.method))].filter((method) => method !== "plain");
for (const method of methods) METHOD[method] ??= method.replaceAll("_", " ");
const atBaseline = (r) => r.backend === baseline.backend && r.batch === baseline.batch;
/** Whether a row is measured under the baseline's conditions: its backend and batch, sampled as the run samples. */
const besideBaseline = (r) => atBaseline(r) && isUsual(r);
/** The row of a drafter at a gamma on the backend of the fastest plain arm, at the baseline's batch. */
const rowOf = (method, gamma) =>
  rows.find((r) => r.method === method && r.gamma === gamma && besideBaseline(r));
const speedupText = (r) => (r.speedup ? withInterval(r.speedup.median, r.speedup.low, r.speedup.high, 2) : "not exact");
const alphaText = (r) => withInterval(r.alpha, ...(r.alpha_interval || []), 3);

/** A select; calls back with the chosen value. */
function choice(id, name, options, onchange) {
  const select = el("select", { id, onchange: () => onchange(select.value) }, options.map(([value, text]) => el("option", { value }, text)));
  return el("label", { for: id }, name, select);
}

/** A slider with its value beside it; calls back with the number. */
function slider(id, name, min, max, step, value, shown, oninput) {
  const output = el("output", { for: id }, shown(value));
  const input = el("input", { id, type: "range", min, max, step, value });
  const set = (to) => { input.value = to; output.textContent = shown(Number(input.value)); input.setAttribute("aria-valuetext", output.textContent); };
  input.addEventListener("input", () => { set(input.value); oninput(Number(input.value)); });
  input.setAttribute("aria-valuetext", shown(value));
  const label = el("label", { for: id }, el("span", {}, ...prose(name)), input, output);
  label.set = set;
  return label;
}

/** Buttons of which one is pressed; calls back with its value. */
function toggle(id, name, options, chosen, onchange) {
  const buttons = options.map(([value, text]) => el("button", { type: "button", id: `${id}-${value}`, "aria-pressed": String(value === chosen), onclick: () => press(value) }, text));
  function press(value) {
    options.forEach(([other], i) => buttons[i].setAttribute("aria-pressed", String(other === value)));
    onchange(value);
  }
  return el("fieldset", { id }, el("legend", {}, name), ...buttons);
}

/** Axes of a chart: maps figures to places and draws grid and labels. */
function axes(box, height, x, y, names) {
  const width = Math.max(Math.min(box.clientWidth || 640, 1000), 260), left = 44, bottom = 40, top = 26, right = 14;
  const atX = (v) => left + ((v - x.min) / (x.max - x.min)) * (width - left - right);
  const atY = (v) => height - bottom - ((v - y.min) / (y.max - y.min)) * (height - bottom - top);
  const root = svg("svg", { width, height, role: "group", "aria-label": names.label });
  for (const v of y.ticks) {
    root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: atY(v), y2: atY(v) }), svg("text", { x: left - 6, y: atY(v) + 4, "text-anchor": "end" }, String(v)));
  }
  for (const v of x.ticks) root.append(svg("text", { x: atX(v), y: height - bottom + 16, "text-anchor": "middle" }, String(v)));
  root.append(svg("text", { class: "faint", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, names.x), svg("text", { class: "faint", x: left - 34, y: 11 }, names.y));
  return { root, atX, atY, left, right: width - right };
}

/** Round tick values from 0 (or a start) to at least the top. */
function ticks(max, most = 6, min = 0) {
  const raw = (max - min) / most, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= raw);
  const found = [];
  for (let v = min; v < max + step * 0.999; v += step) found.push(Number(v.toPrecision(6)));
  return found;
}

/** A mark in a chart that can be clicked, focused and pressed by Enter or space. */
function mark(attributes, label, onclick, ...shapes) {
  const group = svg("g", { tabindex: "0", role: "button", "aria-label": label, ...attributes }, ...shapes);
  group.addEventListener("click", onclick);
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onclick(); }
  });
  return group;
}

const WATERFALL = {
  theory: "forwards alone, as theory counts them", positions: "acceptance is not the same at every position", verify: "verifying γ+1 tokens costs more than one",
  drafting: "drafter: catching up, sampling", accept: "accepting, sampling, caches", host: "host: calling the round", unexplained: "unexplained: measured less all of these", measured: "measured",
};

function rowDetails(row) {
  const parts = [el("h3", {}, row.label)];
  parts.push(figures(
    [number(row.tokens_per_target_forward, 3), "tokens / forward"], [alphaText(row), "α"],
    [number(row.expected_tokens, 3), "eq. (1) tokens"], [number(row.theory_speedup, 2), "theory speed-up"],
    [speedupText(row), "measured speed-up"]));
  if (row.acceptance_at.length) {
    parts.push(el("p", { class: "small" }, "Accepted at draft position (given that it was examined): ", row.acceptance_at.map((a, i) => `${i + 1}: ${number(a, 3)}`).join(" · "), row.gamma > 2 ? ". Long rounds mostly begin right behind a rejection, where the text is hard, so their first drafts do worse than those of short rounds." : ""));
  }
  if (row.waterfall) parts.push(waterfallTable([row]));
  return parts;
}

/** Rows' terms from theory to the clock side by side, µs a token. */
function waterfallTable(shown) {
  const largest = Math.max(...shown.flatMap((r) => Object.values(r.waterfall).map(Math.abs)));
  const cell = (row, name) => {
    const value = row.waterfall[name];
    return el("td", {}, number(value, 1), el("span", { class: "bar-stack", "aria-hidden": "true" }, el("i", { style: `width:${(100 * Math.abs(value)) / largest}%;background:var(${value < 0 ? "--bad" : name === "measured" ? "--f" : "--accent"})` })));
  };
  return el("div", { class: "scroll" }, el("table", { class: "plain waterfall" },
    el("thead", {}, el("tr", {}, el("th", {}, "µs a token"), shown.map((r) => el("th", { scope: "col" }, shown.length > 1 ? (r.gamma ? `γ=${r.gamma}` : "plain") : r.label)))),
    el("tbody", {}, Object.keys(WATERFALL).map((name) => el("tr", {}, el("td", { class: "wide" }, WATERFALL[name]), shown.map((r) => cell(r, name)))))));
}
