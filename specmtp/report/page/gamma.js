// Step 3: how many tokens to guess: theory as a curve one can bend, measured rows as points on it.

function gammaStep(box) {
  box.append(paragraph("Longer guesses are worth less and less: draft 5 counts only if the four before it were accepted. And each costs a forward of the drafter, {c} of a target's. So there is a best {γ}, and past it speculation can be slower than none. Theory counts forwards as if verifying many tokens cost no more than one; the clock knows better.", { class: "lead" }));
  const alphas = methods.map((m) => rowOf(m, 1) || rows.find((r) => r.method === m && isNumber(r.alpha))).filter((r) => r && isNumber(r.alpha));
  const first = alphas[0];
  const measuredC = (method) => { const row = rowOf(method, 1) || rows.find((r) => r.method === method && isNumber(r.c)); return row && isNumber(row.c) ? row.c : null; };
  const state = { method: first ? first.method : null, view: "speedup", alpha: first ? first.alpha : 0.8, c: first ? measuredC(first.method) ?? 0.1 : 0.1, row: null, most: 10 };
  const chart = el("div", { id: "gamma-chart" }), best = el("p", { id: "best", "aria-live": "polite" }), details = el("div", { id: "gamma-row", class: "card", hidden: true });
  const alpha = slider("alpha", "{α}", 0, 0.99, 0.001, state.alpha, (v) => number(v, 3), (v) => { state.alpha = v; draw(); });
  const c = slider("c", "{c}", 0, 1, 0.001, state.c, (v) => number(v, 3), (v) => { state.c = v; draw(); });
  const setC = (value) => { state.c = value; c.set(value); draw(); };
  const presets = el("fieldset", { id: "presets" }, el("legend", {}, "set c to"),
    el("button", { type: "button", id: "c-measured", onclick: () => setC(measuredC(state.method) ?? state.c) }, "measured c"), el("button", { type: "button", id: "c-005", onclick: () => setC(0.05) }, "0.05"), el("button", { type: "button", id: "c-0", onclick: () => setC(0) }, "0"));
  const verified = ledger.profile && ledger.profile.verify.length > 1 ? ledger.profile.verify : null;
  const costs = el("div", { class: "card", id: "gamma-costs" });
  const controls = el("div", { class: "controls" });
  if (methods.length > 1) controls.append(choice("gamma-method", "measured rows of", methods.map((m) => [m, METHOD[m]]), (value) => { state.method = value; state.row = null; const row = alphas.find((r) => r.method === value); if (row) { state.alpha = row.alpha; alpha.set(row.alpha); } setC(measuredC(value) ?? state.c); }));
  controls.append(toggle("view", "show", [["speedup", "speed-up"], ["tokens", "tokens / forward"]], state.view, (value) => { state.view = value; draw(); }));
  box.append(controls, el("div", { class: "controls" }, alpha, c, presets), el("div", { class: "card" }, chart, el("div", { class: "legend" }, el("span", {}, el("i", { style: "background:var(--accent)" }), "theory, with the α and c above at every γ"), verified ? el("span", {}, el("i", { style: "background:var(--bad)" }), "the same, with what verifying γ+1 tokens was measured to cost") : null, el("span", {}, el("i", { style: "background:var(--q)" }), "measured in this run; choose one for its row")), best), details, costs);

  function draw() {
    const tokens = state.view === "tokens", { alpha: a, c: cost } = state;
    const value = (gamma) => (tokens ? expectedTokens(a, gamma) : theorySpeedup(a, gamma, cost));
    const found = rows.filter((r) => r.method === state.method && besideBaseline(r) && (tokens || r.speedup));
    const ofRow = (r) => (tokens ? [r.tokens_per_target_forward, ...(r.tokens_interval || [])] : [r.speedup.median, r.speedup.low, r.speedup.high]);
    const most = Math.max(state.most, ...found.map((r) => r.gamma)), gammas = Array.from({ length: most + 1 }, (_, i) => i);
    const ceiling = tokens ? 1 / (1 - a) : null;
    const top = Math.max(...gammas.map(value), ...found.flatMap(ofRow).filter(isNumber), tokens ? Math.min(ceiling, 1.3 * value(most)) : 1.2);
    const yTicks = ticks(top), area = axes(chart, 320, { min: 0, max: most, ticks: gammas }, { min: 0, max: yTicks[yTicks.length - 1], ticks: yTicks }, { x: "γ, drafts a round", y: tokens ? "tokens / forward" : "speed-up over plain decoding", label: `${tokens ? "Tokens a forward" : "Speed-up"} against gamma` });
    const guide = (at, text) => { if (at <= 1.0001 * yTicks[yTicks.length - 1]) area.root.append(svg("line", { class: "guide", x1: area.left, x2: area.right, y1: area.atY(at), y2: area.atY(at) }), svg("text", { class: "faint", x: area.right, y: area.atY(at) - 5, "text-anchor": "end" }, text)); };
    guide(1, "1.0×: plain decoding");
    if (tokens) guide(ceiling, `ceiling 1/(1−α) = ${number(ceiling, 2)}`);
    area.root.append(svg("polyline", { class: "curve", points: gammas.map((g) => `${area.atX(g)},${area.atY(value(g))}`).join(" ") }));
    if (!tokens && verified) {
      const known = gammas.filter((g) => verified.some((v) => v.tokens === g + 1));
      const real = (g) => expectedTokens(a, g) / (verified.find((v) => v.tokens === g + 1).ratio + g * cost);
      area.root.append(svg("polyline", { class: "curve costly", points: known.map((g) => `${area.atX(g)},${area.atY(real(g))}`).join(" ") }));
    }
    for (const row of found) {
      const [middle, low, high] = ofRow(row), x = area.atX(row.gamma);
      const shapes = isNumber(low) ? [svg("line", { class: "interval", x1: x, x2: x, y1: area.atY(low), y2: area.atY(high) })] : [];
      area.root.append(mark({ "data-row": row.id, class: state.row === row.id ? "chosen" : "" }, `${row.label}: ${withInterval(middle, low, high, 2)}`, () => { state.row = row.id; draw(); chart.querySelector(".chosen").focus(); }, ...shapes, svg("circle", { class: "point", cx: x, cy: area.atY(middle), r: 6 })));
    }
    chart.replaceChildren(area.root);
    const star = gammas.reduce((b, g) => (theorySpeedup(a, g, cost) > theorySpeedup(a, b, cost) + 1e-12 ? g : b), 0);
    best.textContent = cost === 0 ? `At c = 0 longer is never worse: drafts are free, and tokens a forward only rise towards 1/(1−α) = ${number(1 / (1 - a), 2)}.`
      : star === 0 ? `With this α and c the best γ is 0: do not speculate, no γ beats plain decoding.` : `With this α and c theory's best γ is ${star}: ${number(expectedTokens(a, star), 2)} tokens a forward, ${number(theorySpeedup(a, star, cost), 2)}× as fast as plain decoding${star === most ? ` (of those up to ${most})` : ""}.`;
    const fastest = found.filter((r) => r.speedup).sort((x, y) => y.speedup.median - x.speedup.median)[0];
    if (fastest) best.textContent += ` Measured here: γ = ${fastest.gamma} is fastest, ${speedupText(fastest)}×.`;
    const timed = [baseline, ...found].filter((r) => r.waterfall);
    costs.hidden = timed.length < 2;
    if (!costs.hidden) costs.replaceChildren(el("h3", {}, "Where a token's time goes, and why longer is not better"), waterfallTable(timed),
      verified ? el("p", { class: "small" }, `Verifying is not free: ${verified.filter((v) => [2, 5, 9].includes(v.tokens)).map((v) => `${v.tokens} tokens at once cost ${number(v.ratio, 2)} times as much as one`).join(", ")} on this machine.`) : "");
    const row = rows.find((r) => r.id === state.row);
    details.hidden = !row;
    details.replaceChildren(...(row ? rowDetails(row) : []));
  }
  draw();
  return draw;
}
