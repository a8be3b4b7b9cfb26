// Step 1: a recorded round, and what one forward of the target sees and yields.

function verifyStep(box) {
  const rounds = closeup.rounds;
  box.append(paragraph("A {target} that writes one symbol (a token is one symbol here) needs one {forward}. A {drafter} guesses the next {γ} symbols first; one forward of the target over all of them then says, for every place, what it would have written there. Here is a {round} that this run really played.", { class: "lead" }));
  if (!rounds.length) {
    box.append(el("p", { class: "card" }, "This ledger holds no recorded round: no drafter was measured, or it was written by an older bench.py."));
    return () => {};
  }
  const drafters = methods.filter((m) => rounds.some((r) => r.method === m));
  const state = { method: drafters[0], gamma: 4, mode: "speculative", row: 0 };
  const gammas = (method) => rounds.filter((r) => r.method === method).map((r) => r.gamma);
  const strip = el("div", { class: "strip", id: "strip" });
  const mask = el("div", { class: "scroll" });
  const sees = el("p", { id: "sees", "aria-live": "polite" });
  const forwards = el("ul", { id: "forwards", class: "bare" });
  const counters = el("div", { id: "counters" });
  const controls = el("div", { class: "controls" });
  if (drafters.length > 1) controls.append(choice("round-method", "drafter", drafters.map((m) => [m, METHOD[m]]), (value) => { state.method = value; update(); }));
  controls.append(
    slider("round-gamma", "{γ}", Math.min(...gammas(state.method)), Math.max(...gammas(state.method)), 1, state.gamma, String, (value) => { state.gamma = value; state.row = 0; update(); }),
    toggle("round-mode", "feed them", [["speculative", "all at once"], ["plain", "one at a time"]], state.mode, (value) => { state.mode = value; update(); }));
  box.append(controls,
    el("div", { class: "card" }, el("h3", {}, "The end of the text, the drafts, and what became of them"), strip,
      el("div", { class: "legend", "aria-hidden": "true" }, [["context", "committed text"], ["pending", "last token, not yet fed"], ["accepted", "draft, accepted"], ["rejected", "draft, rejected"], ["dropped", "draft, dropped unseen"], ["own", "the target's own token"]].map(([kind, text]) => el("span", {}, el("i", { class: kind }), text)))),
    counters,
    el("div", { class: "columns" },
      el("div", { class: "card" }, el("h3", {}, "Who sees whom"), el("p", { class: "small soft" }, "A row is a token that is fed; a coloured cell is a token it sees. Choose a row."), mask, sees),
      el("div", { class: "card" }, el("h3", {}, "Forwards of the target"), forwards)));
  const causal = ledger.checks.causal_max_abs_diff;
  box.append(el("p", { class: "card", id: "causal" }, "Measured in this run: ", term("logits"), ` of a text fed alone, and with 8 more symbols behind it, differ by at most ${small(causal)} (allowed: ${small(ledger.checks.causal_limit)}). What stands behind a row cannot change it: so the rows before a wrong draft are as good as if it had never been fed.`));

  function update() {
    const round = rounds.find((r) => r.method === state.method && r.gamma === state.gamma);
    const gamma = round.gamma, accepted = round.accepted, context = [...round.context];
    const pending = context[context.length - 1], before = context.slice(-6, -1);
    const kind = (i) => (i < accepted ? "accepted" : i === accepted ? "rejected" : "dropped");
    strip.replaceChildren(
      ...context.slice(-17, -1).map((symbol) => el("span", { class: "token context" }, visible(symbol))),
      el("span", { class: "token pending" }, visible(pending)),
      ...round.drafts.map((symbol, i) => el("span", { class: `token ${kind(i)}`, title: `p ${small(round.p[i])}, q ${small(round.q[i])}, u ${small(round.u[i])}` }, visible(symbol), el("small", {}, i <= accepted ? kind(i) : "dropped"))),
      el("span", { class: "token own" }, visible(round.next), el("small", {}, accepted < gamma ? "resampled" : "bonus")));
    const fed = [pending, ...round.drafts], plain = state.mode === "plain";
    const dead = (i) => i > accepted;
    mask.replaceChildren(el("table", { class: "mask", id: "mask" },
      el("thead", {}, el("tr", {}, el("th", {}, ""), ...[...before, ...fed].map((symbol) => el("th", { scope: "col" }, visible(symbol))))),
      el("tbody", {}, fed.map((symbol, i) => el("tr", { class: `${i === state.row ? "chosen" : ""} ${dead(i) ? "dead" : ""}` },
        el("th", { scope: "row" }, el("button", { type: "button", "aria-pressed": String(i === state.row), onclick: () => { state.row = i; update(); mask.querySelectorAll("button")[i].focus(); } }, `row ${i}: ${visible(symbol)}`)),
        [...before, ...fed].map((_, j) => el("td", { class: j <= before.length + i ? "seen" : "" })))))));
    const window = ledger.models.target && ledger.models.target.config ? ledger.models.target.config.attention_window : null;
    const chosen = state.row;
    const gives = chosen < gamma ? `the distribution that draft ${chosen + 1} (“${visible(round.drafts[chosen])}”) is held against` : "the distribution of a bonus token, used if all drafts were accepted";
    const odds = () => `The target gives that draft p = ${small(round.p[chosen])}, the drafter gave it q = ${small(round.q[chosen])}; the random number u = ${small(round.u[chosen])} lies ${chosen < accepted ? "below" : "above"} p/q = ${number(round.p[chosen] / round.q[chosen], 3)}`;
    sees.textContent = `Row ${chosen} sees itself and the tokens before it (${window ? `at most ${window}, the window` : "as far as the window goes"}), none behind it, and gives ${gives}. ` +
      (dead(chosen) ? "It stands behind the first rejection, so it is thrown away." : chosen === gamma ? "All drafts were accepted, so the bonus token comes from here." : chosen === accepted ? `${odds()}: rejected. The token in its place is drawn from what p has more than q, and this row is the last that counts.` : `${odds()}: accepted.`) + " (Step 2 explains the rule.)";
    const emitted = accepted + 1;
    const tokens = (symbols, kinds) => el("span", { class: "strip inline" }, symbols.map((symbol, i) => el("span", { class: `token ${kinds(i)}` }, visible(symbol))));
    const fedKind = (i) => (i === 0 ? "pending" : kind(i - 1));
    const emittedTokens = tokens([...round.drafts.slice(0, accepted), round.next], (i) => (i < accepted ? "accepted" : "own"));
    forwards.replaceChildren(...(plain
      ? fed.map((symbol, i) => el("li", { class: dead(i) ? "soft" : "" }, `forward ${i + 1} reads 1 symbol `, tokens([symbol], () => fedKind(i)), dead(i) ? " → in vain: a draft before it is wrong" : " → yields 1 symbol ", dead(i) ? null : tokens([i < accepted ? round.drafts[i] : round.next], () => (i < accepted ? "accepted" : "own"))))
      : [el("li", {}, `forward 1 reads ${gamma + 1} symbols `, tokens(fed, fedKind), ` → yields ${plural(emitted, "symbol")} `, emittedTokens)]));
    counters.replaceChildren(figures([plain ? String(gamma + 1) : "1", plain ? `forwards of the target for these ${gamma + 1} rows, one at a time` : `forward of the target for these ${gamma + 1} rows, all at once`], [plain ? "1" : String(gamma + 1), plain ? "forward does the same at once" : "forwards, were the same rows fed one at a time"], [String(emitted), emitted > 1 ? "symbols emitted; plain decoding takes as many forwards for them" : "symbol emitted, as many as plain decoding emits with a forward"], [String(gamma - accepted), gamma - accepted === 1 ? "draft in vain" : "drafts in vain"]));
  }
  update();
  return () => {};
}
