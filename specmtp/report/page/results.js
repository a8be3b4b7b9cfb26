// Step 5: the ledger itself: rows, checks, batches, where it was measured; and the files to take away.

const COLUMNS = ["id", "label", "method", "gamma", "backend", "batch", "temperature", "tokens", "generations", "rounds", "target_forwards", "draft_forwards", "tokens_per_target_forward", "alpha", "alpha_minpq", "expected_tokens", "c", "theory_speedup", "ms_per_token", "checks_passed"];

function csv() {
  const cell = (value) => { const text = value === null || value === undefined ? "" : String(value); return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
  const head = [...COLUMNS, "speedup", "speedup_low", "speedup_high"];
  const lines = rows.map((row) => [...COLUMNS.map((name) => row[name]), ...(row.speedup ? [row.speedup.median, row.speedup.low, row.speedup.high] : ["", "", ""])]);
  return [head, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

function save(name, type, content) {
  const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function resultsStep(box) {
  box.append(paragraph("Everything above rests on these rows. A {speed-up} is over the fastest plain decoding under the same conditions; “faster” and “slower” are said only where the 95 % interval lies on one side of 1." + (ledger.fastest === undefined ? "" : " The sentence below is stricter: it counts how many arms were tried, for among many one looks fast by chance."), { class: "lead" }));
  box.append(el("p", { id: "verdict" }, ledger.verdict));
  const backends = [...new Set(rows.map((row) => row.backend))], sets = backends.map((b) => [b, BACKEND[b] || b]);
  if (rows.some((row) => !isSampled(row))) sets.push(["greedy", "temperature 0"]);
  if (sets.length > 1) sets.push(["all", "all"]);
  const state = { set: baseline.backend, order: "run", row: null };
  const table = el("div", { class: "scroll" }), details = el("div", { class: "card", id: "row", hidden: true });
  box.append(el("div", { class: "controls" },
    sets.length > 1 ? choice("set", "rows", sets, (value) => { state.set = value; draw(); }) : null,
    toggle("order", "order", [["run", "as run"], ["tokens", "tokens / forward"], ["speedup", "speed-up"]], state.order, (value) => { state.order = value; draw(); })), el("div", { class: "card" }, table, el("p", { class: "small soft" }, "Bars: speed-up with its interval; the dashed line marks 1.0×. Choose a method for its details. Eager: every operation is called by Python; compiled: a whole round is one graph.")), details);
  if (sets.length > 1) byId("set").value = state.set;

  function draw() {
    const shown = rows.filter((r) => state.set === "all" || (state.set === "greedy" ? !isSampled(r) : r.backend === state.set && isSampled(r)));
    const key = { tokens: (r) => r.tokens_per_target_forward ?? -1, speedup: (r) => (r.speedup ? r.speedup.median : -1) }[state.order];
    const ordered = key ? [...shown].sort((a, b) => key(b) - key(a)) : shown;
    const top = 1.1 * Math.max(1.1, ...shown.map((r) => (r.speedup ? r.speedup.high ?? r.speedup.median : 0)));
    const sorted = (name) => (state.order === name ? "descending" : "none");
    const bar = (r) => {
      if (!r.speedup) return "";
      const at = (v) => (110 * v) / top, s = r.speedup, colour = s.verdict === "faster" ? "--good" : s.verdict === "slower" ? "--bad" : "--soft";
      return svg("svg", { width: 110, height: 18, "aria-hidden": "true" }, svg("rect", { x: 0, y: 4, width: at(s.median), height: 10, rx: 2, style: `fill:var(${colour})` }),
        ...(isNumber(s.low) ? [svg("line", { x1: at(s.low), x2: at(s.high), y1: 9, y2: 9, style: "stroke:var(--ink);stroke-width:2" })] : []), svg("line", { x1: at(1), x2: at(1), y1: 0, y2: 18, style: "stroke:var(--ink);stroke-dasharray:2 2" }));
    };
    const head = [["method", null], ["speed-up", "speedup"], ["", null], ["ms / token", null], ["tokens / forward", "tokens"], ["forwards", null], ["α", null], ["eq. (1)", null], ["c", null], ["theory", null]];
    table.replaceChildren(el("table", { class: "plain", id: "rows" },
      el("thead", {}, el("tr", {}, head.map(([name, order]) => el("th", { scope: "col", "aria-sort": order ? sorted(order) : null }, name in TERMS ? term(name) : name)))),
      el("tbody", {}, ordered.map((r) => el("tr", { class: r.id === state.row ? "chosen" : "", "data-row": r.id },
        el("td", {}, el("button", { type: "button", "aria-pressed": String(r.id === state.row), onclick: () => choose(r.id) }, r.label)),
        el("td", {}, r.speedup ? speedupText(r) : el("span", { class: "failed" }, "not exact")), el("td", {}, bar(r)), el("td", {}, number(r.ms_per_token, 3)), el("td", {}, number(r.tokens_per_target_forward, 3)),
        el("td", {}, count(r.target_forwards / r.generations)), el("td", {}, number(r.alpha, 3)), el("td", {}, number(r.expected_tokens, 3)), el("td", {}, number(r.c, 2)), el("td", {}, number(r.theory_speedup, 2)))))));
    const row = rows.find((r) => r.id === state.row);
    details.hidden = !row;
    details.replaceChildren(...(row ? rowDetails(row) : []));
  }
  function choose(id) {
    state.row = state.row === id ? null : id;
    draw();
    table.querySelector(`tr[data-row="${id}"] button`).focus({ preventScroll: true });
    if (state.row) details.scrollIntoView({ block: "nearest" });
  }
  draw();

  const batches = [...new Set(rows.map((r) => r.batch))].sort((a, b) => a - b);
  let drawBatches = () => {};
  if (batches.length > 1) {
    const chart = el("div", { id: "batch-chart" });
    box.append(el("div", { class: "card" }, el("h3", {}, "Speed-up against batch"), el("p", { class: "small" }, "Each over plain decoding of the same batch: the fastest γ of every drafter."), chart));
    drawBatches = () => {
      const points = methods.flatMap((m) => batches.map((b) => rows.filter((r) => r.method === m && r.batch === b && isUsual(r) && r.backend !== "uncached" && r.speedup).sort((x, y) => y.speedup.median - x.speedup.median)[0]).filter(Boolean));
      const yTicks = ticks(Math.max(1.2, ...points.map((r) => r.speedup.high ?? r.speedup.median)));
      const area = axes(chart, 260, { min: -0.5, max: batches.length - 0.5, ticks: [] }, { min: 0, max: yTicks[yTicks.length - 1], ticks: yTicks }, { x: "rows decoded at once", y: "speed-up", label: "Speed-up against batch" });
      batches.forEach((b, i) => area.root.append(svg("text", { x: area.atX(i), y: 236, "text-anchor": "middle" }, String(b))));
      area.root.append(svg("line", { class: "guide", x1: area.left, x2: area.right, y1: area.atY(1), y2: area.atY(1) }));
      for (const r of points) {
        const x = area.atX(batches.indexOf(r.batch)) + 14 * (methods.indexOf(r.method) - (methods.length - 1) / 2), s = r.speedup;
        area.root.append(mark({ "data-row": r.id }, `${r.label}: ${withInterval(s.median, s.low, s.high, 2)}`, () => { state.set = "all"; if (byId("set")) byId("set").value = "all"; state.row = null; choose(r.id); }, ...(isNumber(s.low) ? [svg("line", { class: "interval", x1: x, x2: x, y1: area.atY(s.low), y2: area.atY(s.high) })] : []), svg("circle", { class: "point", cx: x, cy: area.atY(s.median), r: 6 }), svg("text", { x: x + 8, y: area.atY(s.median) + 4 }, `${METHOD[r.method]} ${r.gamma}`)));
      }
      chart.replaceChildren(area.root);
    };
    drawBatches();
  }
  box.append(...rulesCard(), ...draftersCard(), checksCard(), provenanceCard());
  return () => drawBatches();
}

const ruleOf = (r) => ((r.rule || "token") === "token" ? "" : RULE[r.rule] || r.rule);
const setting = (r) => ["γ=" + r.gamma, ruleOf(r)].filter(Boolean).join(" ");
const RULE = { token: "token by token", block: "block verification", exact_match: "exact match", typical: "typical (lossy)" };
const plainTable = (id, head, lines) => el("div", { class: "scroll" }, el("table", { class: "plain", id }, el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, lines.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))));

/** What other accept rules keep of the same drafts; nothing where the run had but one. */
function rulesCard() {
  const gains = ledger.rules || [];
  if (!gains.length) return [];
  const names = [...new Set(gains.map((g) => g.rule))], arms = [...new Map(gains.map((g) => [`${g.method} ${g.gamma}`, g])).values()];
  const cell = (arm, rule) => {
    const g = gains.find((x) => x.method === arm.method && x.gamma === arm.gamma && x.rule === rule);
    return g ? number(g.tokens_per_target_forward, 3) + (rule === "token" ? "" : `, ${g.gain > 0 ? "+" : ""}${withInterval(g.gain, ...g.gain_interval, 3)}`) : "–";
  };
  return [el("div", { class: "card" }, el("h3", {}, "Other accept rules"),
    paragraph("{tokens / forward} at the same states, with the same drafts and noise, and what a rule gains over token by token with its 95 % interval. All rules but the typical one keep the {law}; that one keeps more and changes it."),
    plainTable("rules", ["drafter", ...names.map((rule) => RULE[rule] || rule)], arms.map((arm) => [`${METHOD[arm.method]} γ=${arm.gamma}`, ...names.map((rule) => cell(arm, rule))])))];
}

/** What every drafter takes and gives, with lossless rules; nothing where there is none. */
function draftersCard() {
  const lines = methods.map((method) => {
    const own = rows.filter((r) => r.method === method && atBaseline(r) && isLossless(r)), model = models[method];
    const most = own.reduce((a, b) => (b.tokens_per_target_forward > a.tokens_per_target_forward ? b : a), own[0]);
    const fastest = own.filter((r) => r.speedup).sort((a, b) => b.speedup.median - a.speedup.median)[0];
    return [METHOD[method], model ? count(model.parameters) : "0", model ? count(model.step) : "–", model ? count(model.train_seconds) : "–",
      most ? `${number(most.tokens_per_target_forward, 2)} (${setting(most)})` : "–", fastest ? `${setting(fastest)}, ${speedupText(fastest)}` : "–"];
  });
  return lines.length ? [el("div", { class: "card" }, el("h3", {}, "The drafters"), plainTable("drafters", ["drafter", "own parameters", "steps trained", "seconds trained", "most tokens / forward", "fastest row"], lines))] : [];
}

function checksCard() {
  const { checks } = ledger, ok = (passed) => el("span", { class: passed ? "passed" : "failed" }, passed ? "✓ passed" : "✗ failed");
  const name = (c) => `${METHOD[c.method]}${c.gamma ? ` γ=${c.gamma}` : ""}${ruleOf(c) && `, ${ruleOf(c)}`}, ${BACKEND[c.backend] || c.backend}`;
  // a rule that changes the law fails by design, and does not count
  const lossy = new Set(rows.filter((r) => r.lossless === false).map((r) => r.rule)), verdict = (c) => (lossy.has(c.rule) ? (c.passed ? "not told apart" : "differs, as it must") : ok(c.passed));
  const group = (title, list, headers, cells) => {
    if (!list.length) return null;
    const exact = list.filter((c) => !lossy.has(c.rule)), others = list.length - exact.length;
    return el("details", {}, el("summary", {}, `${title}: ${exact.filter((c) => c.passed).length} of ${plural(exact.length, "comparison")} `, ok(exact.every((c) => c.passed)), others ? `, beside ${others} of a lossy rule` : ""),
      plainTable(null, ["arm", ...headers], list.map((c) => [name(c), ...cells(c), verdict(c)])));
  };
  const effect = checks.mtp_effect;
  return el("div", { class: "card", id: "checks" }, el("h3", {}, "Was the output changed? ", ok(checks.passed)),
    el("p", {}, `Causality: ${small(checks.causal_max_abs_diff)} (at most ${small(checks.causal_limit)}) `, ok(checks.causal_max_abs_diff <= checks.causal_limit)),
    group("Greedy texts identical to plain decoding", checks.greedy, ["tokens", "identical", "first divergence", ""], (c) => [count(c.tokens), `${c.identical} of ${c.prompts}`, c.first_divergence ? JSON.stringify(c.first_divergence) : "none"]),
    group("Samples follow the target's law", checks.sampling, ["rounds", "total variation", "limit", "least p-value", "limit", ""], (c) => [count(c.draws), small(c.tv), small(c.tv_limit), small(Math.min(c.p_value, ...c.p_values_later, c.p_value_preferred ?? 1)), small(c.p_limit)]),
    group("Pairs of symbols follow the target's law", checks.joint || [], ["pairs", "total variation", "limit", "p-value", "limit", ""], (c) => [count(c.n), small(c.tv), small(c.tv_limit), small(c.p_value), small(c.p_limit)]),
    group("Bigrams of long texts", checks.bigram || [], ["tokens", "total variation", "limit", ""], (c) => [count(c.tokens), small(c.tv), small(c.tv_limit)]),
    group("Graphs draft as their networks do", checks.drafts || [], ["drafts", "differing", "largest difference of q", "limit", ""], (c) => [count(c.drafts), count(c.differing), small(c.max_abs_diff), small(c.limit)]),
    effect ? el("p", {}, `The target's validation loss with the MTP loss ${number(effect.with, 4)}, without ${number(effect.without, 4)}: ${effect.difference > 0 ? "+" : "−"}${number(Math.abs(effect.difference), 4)}, ${plural(effect.seeds, "seed")} each.`) : null);
}

function provenanceCard() {
  const w = ledger.provenance;
  const entries = [["machine", `${w.device_name} (${w.device}), ${plural(w.cores, "core")}, ${plural(w.threads, "thread")} used`], ["software", `torch ${w.torch}, Python ${w.python}, ${w.system}${w.cuda ? `, CUDA ${w.cuda}` : ""}`], ["numbers", w.dtype], ["clock", w.clock], ["text", w.corpus && w.corpus.name ? `${w.corpus.name}, sha256 ${w.corpus.sha256}` : "unknown"], ["prompt", [...w.prompt].map(visible).join("")], ["repeats", `${w.repeats} a prompt, ${plural((w.prompts || [w.prompt]).length, "prompt")}, seed ${w.seed}`], ["written", w.created], ["commit", w.commit || "unknown"], ["command", w.command]];
  return el("div", { class: "card", id: "provenance" }, el("h3", {}, "Where these figures come from"), el("dl", {}, entries.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v ?? "–")])),
    el("div", { class: "controls" }, el("button", { type: "button", id: "save-csv", onclick: () => save("ledger.csv", "text/csv", csv()) }, "Download rows (CSV)"), el("button", { type: "button", id: "save-json", onclick: () => save("ledger.json", "application/json", JSON.stringify(ledger, null, 1)) }, "Download ledger (JSON)")));
}
