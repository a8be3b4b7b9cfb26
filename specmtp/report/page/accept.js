// Step 2: one position with all its probabilities; the accept rule worked out, sampled by the run and by the reader.

function acceptStep(box) {
  box.append(paragraph("A draft x comes from {q}, but the text must follow {p}. The rule: accept x with probability min(1, p(x)/q(x)); after a rejection draw from the {residual}. What comes out has exactly the {law} p, however bad the drafter is; a bad one only costs time.", { class: "lead" }));
  // the position where most symbols have a chance comes first: there is most to see
  const positions = [...closeup.positions].sort((a, b) => Math.max(...a.p) - Math.max(...b.p));
  if (!positions.length) {
    box.append(el("p", { class: "card" }, "This ledger holds no position with its probabilities: no drafter was measured, or it was written by an older bench.py."));
    return () => {};
  }
  const state = { position: positions[0], scale: "linear", chosen: 0, tally: null };
  const name = (x) => `${METHOD[x.method]}, after “…${[...x.context].slice(-14).map(visible).join("")}”`;
  const where = el("p", { class: "text small", id: "context" });
  const measured = el("div", { id: "measured" }), bars = el("div", { class: "bars", id: "bars" }), worked = el("div", { id: "worked", "aria-live": "polite" });
  const log = el("p", { class: "log", id: "log", "aria-live": "polite" }), tally = el("div", { id: "tally" }), histogram = el("div", { class: "bars", id: "histogram" });
  box.append(
    el("div", { class: "controls" },
      choice("position", "position", positions.map((x, i) => [String(i), name(x)]), (value) => { state.position = positions[Number(value)]; state.chosen = 0; reset(); update(); simulated(); }),
      toggle("scale", "bars", [["linear", "linear"], ["root", "√"]], state.scale, (value) => { state.scale = value; update(); simulated(); })),
    where, measured,
    el("div", { class: "columns" },
      el("div", { class: "card" }, el("h3", {}, "The most probable symbols"),
        el("div", { class: "legend", "aria-hidden": "true" }, [["--p", "p, the target"], ["--q", "q, the drafter"], ["--f", "sampled by speculative decoding"]].map(([colour, text]) => el("span", {}, el("i", { style: `background:var(${colour})` }), text))), bars),
      el("div", {},
        el("div", { class: "card", style: "margin-bottom:.9rem" }, worked),
        el("div", { class: "card" }, el("h3", {}, "Try the rule yourself"),
          el("p", { class: "small soft" }, "Over the whole vocabulary, in your browser: a draft from q, a uniform u, accept or resample."),
          el("div", { class: "controls" }, el("button", { type: "button", id: "draw-1", onclick: () => simulate(1) }, "Draw once"), el("button", { type: "button", id: "draw-10000", onclick: () => simulate(10000) }, "Draw 10,000"), el("button", { type: "button", id: "clear", onclick: () => { reset(); simulated(); } }, "Clear")),
          log, tally, el("div", { class: "legend", "aria-hidden": "true" }, [["--p", "p"], ["--f", "drawn here"]].map(([colour, text]) => el("span", {}, el("i", { style: `background:var(${colour})` }), text))), histogram))));

  const most = 12;
  const length = (value, top) => `${100 * (state.scale === "root" ? Math.sqrt(value / top) : value / top)}%`;
  function update() {
    const x = state.position, top = Math.max(...x.p, ...x.q, ...x.frequency);
    where.textContent = "…" + x.context.replaceAll("\n", "⏎\n");
    measured.replaceChildren(figures(
      [count(x.draws), "rounds sampled here"], [small(x.tv), `{total variation}, samples to p (p's own samples stay under ${small(x.tv_limit)})`], [small(x.tv_draft), "total variation, q to p"],
      [number(x.accepted / x.draws, 4), "accepted, measured"], [number(x.beta, 4), "accepted, theory: {Σ min(p, q)}"]));
    bars.replaceChildren(...x.symbols.slice(0, most).map((symbol, i) => el("button", { type: "button", "aria-pressed": String(i === state.chosen), onclick: () => { state.chosen = i; update(); bars.children[i].focus(); },
      "aria-label": `${visible(symbol)}: p ${small(x.p[i])}, q ${small(x.q[i])}, sampled ${small(x.frequency[i])}` },
      el("span", { class: "symbol" }, visible(symbol)), el("span", { class: "bar-stack" }, [["--p", x.p], ["--q", x.q], ["--f", x.frequency]].map(([colour, values]) => el("i", { style: `width:${length(values[i], top)};background:var(${colour})` }))))));
    const i = state.chosen, p = x.p[i], q = x.q[i], kept = Math.min(p, q), added = Math.max(0, p - q);
    worked.replaceChildren(el("h3", {}, `“${visible(x.symbols[i])}” worked out`),
      el("p", {}, `The target wants it with p = ${small(p)}, the drafter proposes it with q = ${small(q)}.`),
      el("p", {}, `Once drafted, it is accepted with probability min(1, p/q) = `, el("output", { id: "accept-probability" }, number(q > 0 ? Math.min(1, p / q) : 1, 4)), p >= q ? ": it is drafted too rarely, so every one is kept." : ": it is drafted too often, so only some are kept."),
      el("p", {}, "Drafted and kept: min(p, q) = ", el("output", {}, small(kept)), "; added by resampling: max(0, p − q) = ", el("output", {}, small(added)), "; together ", el("output", { id: "together" }, small(kept + added)), ` = p. Sampled in this run: ${small(x.frequency[i])}.`));
  }

  function reset() { state.tally = { counts: new Array(state.position.p.length).fill(0), accepted: 0, draws: 0, line: "" }; }
  function pick(weights, total) {
    let left = Math.random() * total, last = 0;
    for (let i = 0; i < weights.length; i++) if (weights[i] > 0) { last = i; left -= weights[i]; if (left < 0) return i; }
    return last;
  }
  function simulate(times) {
    const { p, q, symbols } = state.position, t = state.tally, totalQ = sum(q);
    const residual = p.map((value, i) => Math.max(0, value - q[i])), totalResidual = sum(residual);
    for (let n = 0; n < times; n++) {
      const draft = pick(q, totalQ), u = Math.random(), kept = u * q[draft] < p[draft];
      const out = kept ? draft : totalResidual > 0 ? pick(residual, totalResidual) : pick(p, sum(p));
      t.counts[out]++; t.draws++; t.accepted += kept;
      t.line = `drawn “${visible(symbols[draft])}”, u = ${u.toFixed(3)} ${kept ? "<" : "≥"} p/q = ${(p[draft] / q[draft]).toFixed(3)}: ` + (kept ? "accepted" : `rejected, resampled “${visible(symbols[out])}”`);
    }
    simulated();
  }
  function simulated() {
    const { p, q, symbols } = state.position, t = state.tally;
    log.textContent = t.draws ? t.line : "Nothing drawn yet.";
    const tv = t.draws ? sum(p.map((value, i) => Math.abs(t.counts[i] / t.draws - value))) / 2 : null;
    // the mean of |count/n − p| of a binomial is close to √(2 p (1−p) / (π n))
    const floor = t.draws >= 1000 ? sum(p.map((value) => Math.sqrt((2 * value * (1 - value)) / (Math.PI * t.draws)))) / 2 : null;
    tally.replaceChildren(figures([count(t.draws), "draws"], [t.draws ? number(t.accepted / t.draws, 4) : "–", `accepted (Σ min(p, q) = ${number(sum(p.map((v, i) => Math.min(v, q[i]))), 4)})`], [small(tv), `total variation to p${floor ? ` (as many draws of p itself: about ${small(floor)})` : ""}`]));
    const top = Math.max(...p, ...t.counts.map((n) => n / Math.max(t.draws, 1)));
    histogram.replaceChildren(...(t.draws ? symbols.slice(0, most).map((symbol, i) => el("div", { style: "display:grid;grid-template-columns:4.2rem 1fr;gap:.5rem;padding:0 .4rem" }, el("span", { class: "symbol" }, visible(symbol)),
      el("span", { class: "bar-stack" }, el("i", { style: `width:${length(p[i], top)};background:var(--p)` }), el("i", { style: `width:${length(t.counts[i] / t.draws, top)};background:var(--f)` })))) : []));
  }
  reset(); update(); simulated();
  return () => {};
}
