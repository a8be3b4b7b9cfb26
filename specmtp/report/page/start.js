// The frame: header, tabs, deep links, previous and next, light and dark.

const STEPS = [["Verify in one forward", verifyStep], ["The accept rule", acceptStep], ["How many to guess", gammaStep], ["The MTP head", mtpStep], ["The ledger", resultsStep]];

function chips() {
  const { target, mtp, draft } = ledger.models, w = ledger.provenance;
  const shape = (m) => (m.config ? `, ${m.config.num_layers} layer${m.config.num_layers > 1 ? "s" : ""}, width ${m.config.d_model}` : "");
  const gammas = [...new Set(rows.map((r) => r.gamma).filter((g) => g > 0))].sort((a, b) => a - b);
  return [
    `target: ${count(target.parameters)} parameters${shape(target)}`, draft ? `draft model: ${count(draft.parameters)} parameters${shape(draft)}` : "no draft model",
    mtp ? `MTP: ${count(mtp.parameters)} parameters${mtp.depth ? `, depth ${mtp.depth}` : ""}${isNumber(mtp.weight) ? `, λ ${mtp.weight}` : ""}` : "no MTP",
    target.config ? `window ${target.config.attention_window}` : null, gammas.length ? `γ ${gammas.join(" ")}` : null,
    `${w.device_name}, ${w.device}, ${w.dtype}, ${plural(w.threads, "thread")}`, "one training seed", `${plural(w.repeats, "repeat")} × ${plural((w.prompts || [w.prompt]).length, "prompt")}`,
  ].filter(Boolean);
}

const fastestRow = best();
byId("headline").textContent = !fastestRow ? "" : (ledger.fastest === undefined ? fastestRow.speedup.verdict === "faster" : ledger.fastest) ? `In this run it made decoding ${speedupText(fastestRow)} times as fast (${fastestRow.label}).` : `In this run no way of guessing was surely faster than plain decoding (best: ${fastestRow.label}, ${speedupText(fastestRow)}×).`;
if (matchMedia("(max-width: 40rem)").matches) byId("measured-here").open = false;
byId("chips").append(...chips().map((text) => el("li", {}, text)));
const redraw = STEPS.map(([title, build], i) => {
  const section = byId(`step-${i + 1}`);
  byId(`title-${i + 1}`).textContent = `${i + 1}. ${title}`;
  byId("tabs").append(el("li", {}, el("a", { href: `#step-${i + 1}` }, `${i + 1} ${title}`)));
  const again = build(section);
  section.append(questionsOf(i + 1));
  return again;
});

let current = 0;
function show() {
  const wanted = /^#step-([1-5])$/.exec(location.hash);
  current = wanted ? Number(wanted[1]) : current || 1;
  STEPS.forEach((_, i) => {
    byId(`step-${i + 1}`).hidden = i + 1 !== current;
    const link = byId("tabs").children[i].firstChild;
    if (i + 1 === current) link.setAttribute("aria-current", "step"); else link.removeAttribute("aria-current");
  });
  document.body.dataset.step = current;
  byId("previous").disabled = current === 1;
  byId("next").disabled = current === STEPS.length;
  byId("where").textContent = `${current} of ${STEPS.length}`;
  redraw[current - 1]();
}
const go = (step) => { location.hash = `#step-${step}`; window.scrollTo(0, 0); byId("main").focus({ preventScroll: true }); };
byId("previous").addEventListener("click", () => go(current - 1));
byId("next").addEventListener("click", () => go(current + 1));
window.addEventListener("hashchange", show);
window.addEventListener("resize", () => redraw[current - 1]());
byId("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
show();
