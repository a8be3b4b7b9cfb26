// Step 4: what an MTP module is made of, and a real sample, symbol by symbol.

const PARTS = {
  embedding: ["embedding of token t + 1", "Turns the next token, already known, into a vector. It is the target's own table."],
  norm_hidden: ["RMSNorm", "Scales the target's hidden state h, the last block's output before the final norm."],
  norm_embedding: ["RMSNorm", "Scales the embedding of the next token to the same size, so that neither drowns the other."],
  projection: ["projection 2d → d", "One linear map without bias takes both, side by side, back to the target's width."],
  attention: ["attention, with its norm", "The module's own block looks back over earlier positions, with a key-value cache of its own."],
  feed_forward: ["feed-forward, with its norm", "The second half of the module's own block."],
  final_norm: ["final norm", "The target's own, shared."],
  head: ["output head", "The target's own, shared: from a vector to the logits of the token after the next."],
};

function mtpStep(box) {
  const mtp = ledger.models.mtp, parts = mtp && mtp.parts;
  box.append(paragraph("A separate draft model starts from bare text. An {MTP} module starts from what the target has already computed: its hidden state, and the token that was just chosen. It is trained beside the target, with loss = main + {λ} · MTP, and drafts with it. Asked for more drafts than it has depths, it is fed its own output again, one position further on.", { class: "lead" }));
  const columns = el("div", { class: "columns" });
  if (parts) {
    const about = el("p", { id: "part", "aria-live": "polite" }), flow = el("div", { class: "flow", id: "flow" });
    const byName = Object.fromEntries(parts.map((part) => [part.name, part]));
    const button = (name, wide) => el("button", { type: "button", id: `part-${name}`, class: `${byName[name].own ? "is-own" : "is-shared"} ${wide ? "both" : ""}`, "aria-pressed": "false", onclick: () => choose(name) }, PARTS[name][0], el("small", {}, `${byName[name].own ? "own" : "shared with the target"} · ${count(byName[name].parameters)}`));
    const arrow = (text) => el("div", { class: "arrow both", "aria-hidden": "true" }, text);
    flow.append(el("div", { class: "given" }, "hidden state h of position t", el("small", {}, "from the target's last block")), button("embedding"), arrow("↓"), button("norm_hidden"), button("norm_embedding"), arrow("↓ side by side ↓"),
      button("projection", true), button("attention", true), button("feed_forward", true), arrow("↓"), button("final_norm", true), button("head", true), arrow("distribution of the token at t + 2"));
    const own = parts.filter((part) => part.own);
    const total = sum(own.map((part) => part.parameters));
    function choose(name) {
      for (const part of parts) byId(`part-${part.name}`).setAttribute("aria-pressed", String(part.name === name));
      about.textContent = `${PARTS[name][0]}: ${PARTS[name][1]} ${count(byName[name].parameters)} parameters, ${byName[name].own ? "the module's own" : "the target's, not counted here"}.`;
    }
    about.textContent = "Choose a part to read what it is.";
    columns.append(el("div", { class: "card" }, el("h3", {}, mtp.depth > 1 ? `${mtp.depth} depths${mtp.shared ? ", one shared module" : ""}` : "The module"), flow, about,
      el("p", { id: "own-total" }, `Own parts: ${own.map((part) => count(part.parameters)).join(" + ")} = `, el("output", {}, count(total)), ` parameters, ${number((100 * total) / ledger.models.target.parameters, 0)} % of the target's ${count(ledger.models.target.parameters)}.`)));
  } else {
    columns.append(el("p", { class: "card" }, mtp ? "This ledger does not say what its MTP module is made of." : "This target was trained without MTP modules: only what a draft model did is shown."));
  }
  const card = compare(), wide = card.querySelectorAll("thead th").length > 4;
  box.append(columns);
  (wide ? box : columns).append(card);
  box.append(sampleCard());
  return () => {};
}

function compare() {
  const pair = methods.map((m) => [m, rowOf(m, 1)]).filter(([, row]) => row);
  const card = el("div", { class: "card", id: "compare" }, el("h3", {}, "γ = 1, side by side"));
  if (!pair.length) { card.append(el("p", {}, "No drafter has a row at γ = 1 here.")); return card; }
  const loss = (name) => (models[name] ? models[name].val_loss : null);
  card.append(el("div", { class: "scroll" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, el("th", {}, ""), pair.map(([m]) => el("th", {}, METHOD[m])))),
    el("tbody", {},
      el("tr", {}, el("td", {}, term("α")), pair.map(([, r]) => el("td", {}, alphaText(r)))),
      el("tr", {}, el("td", {}, term("tokens / forward")), pair.map(([, r]) => el("td", {}, number(r.tokens_per_target_forward, 3)))),
      el("tr", {}, el("td", {}, term("c")), pair.map(([, r]) => el("td", {}, number(r.c, 2)))),
      el("tr", {}, el("td", {}, term("speed-up")), pair.map(([, r]) => el("td", {}, speedupText(r)))),
      el("tr", {}, el("td", {}, "parameters"), pair.map(([m]) => el("td", {}, count(models[m] && models[m].parameters)))),
      el("tr", {}, el("td", {}, "validation loss"), pair.map(([m]) => el("td", {}, number(loss(m), 4))))))));
  const row = rowOf("mtp", 1);
  if (row && isNumber(row.alpha)) {
    const at = (v) => `${100 * v}%`;
    card.append(el("p", { class: "small" }, "MTP's α on a scale from 0 to 1; the band is the 85–90 % that DeepSeek-V3 reports for its second token:"),
      el("div", { id: "band", role: "img", "aria-label": `MTP's alpha ${number(row.alpha, 3)}; DeepSeek-V3's band is 0.85 to 0.90`, style: "position:relative;height:1.4rem;background:var(--dead);border-radius:.3rem" },
        el("i", { style: `position:absolute;left:${at(0.85)};width:${at(0.05)};top:0;bottom:0;background:var(--good-ground);border:1px solid var(--good)` }),
        el("i", { style: `position:absolute;left:calc(${at(row.alpha)} - 2px);width:4px;top:0;bottom:0;background:var(--accent)` })));
  }
  card.append(el("p", { class: "small soft" }, `Validation loss of the target itself: ${number(loss("target"), 4)}${loss("control") === null ? "" : `; trained without the MTP loss: ${number(loss("control"), 4)}`} (nats a symbol).`));
  return card;
}

function sampleCard() {
  const samples = (closeup.samples.length ? closeup.samples : [ledger.sample]).filter((s) => s && s.rounds.length);
  const card = el("div", { class: "card" }, el("h3", {}, "A real sample, and where each symbol came from"));
  if (!samples.length) { card.append(el("p", {}, "This ledger holds no sample.")); return card; }
  const ordered = [...samples].sort((a, b) => Number(b.row.startsWith("mtp")) - Number(a.row.startsWith("mtp")));
  const state = { sample: ordered[0], coloured: true, round: 0 };
  const text = el("div", { class: "text coloured", id: "sample" }), said = el("p", { id: "sample-round", "aria-live": "polite" }), running = el("div", { id: "running" });
  const at = slider("round", "{round}", 1, ordered[0].rounds.length, 1, ordered[0].rounds.length, String, (value) => { state.round = value; draw(); });
  const controls = el("div", { class: "controls" });
  if (ordered.length > 1) controls.append(choice("sample-row", "by", ordered.map((s) => [s.row, s.label]), (value) => { state.sample = ordered.find((s) => s.row === value); state.round = state.sample.rounds.length; at.querySelector("input").max = state.round; at.set(state.round); draw(); }));
  controls.append(at, toggle("colours", "colours", [["on", "on"], ["off", "off"]], "on", (value) => text.classList.toggle("coloured", value === "on")));
  state.round = state.sample.rounds.length;
  function draw() {
    const { sample, round } = state, symbols = [...sample.text];
    const lengths = sample.rounds.map((r) => [...r.emitted].length), end = sum(lengths.slice(0, round)), start = end - lengths[round - 1];
    text.replaceChildren(...symbols.map((symbol, i) => el("span", { class: `m-${sample.marks[i]} ${i >= start && i < end ? "now" : i >= end ? "later" : ""}` }, symbol === "\n" ? "⏎\n" : symbol)));
    const played = sample.rounds.slice(0, round), now = played[round - 1];
    const examined = sum(played.map((r) => Math.min(r.accepted + 1, [...r.drafts].length))), accepted = sum(played.map((r) => r.accepted));
    said.textContent = `Forward ${round} emitted “${[...now.emitted].map(visible).join("")}”: ${now.accepted} of ${[...now.drafts].length} drafts (“${[...now.drafts].map(visible).join("")}”) accepted.`;
    running.replaceChildren(figures([String(round), "forwards so far"], [number(end / round, 3), "tokens / forward so far"], [examined ? number(accepted / examined, 3) : "–", "α so far"]));
  }
  draw();
  card.append(controls, el("div", { class: "legend", "aria-hidden": "true" }, [["accepted", "accepted draft"], ["pending", "sampled by the target (bonus)"], ["own", "resampled after a rejection"]].map(([kind, name]) => el("span", {}, el("i", { class: kind }), name))), text, said, running);
  return card;
}
