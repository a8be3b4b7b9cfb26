// What readers ask, answered with this run's figures; an answer that this run does not bear out is null and not shown.

const times = (value) => `${number(value, 2)}×`;
/** The row that is faster beyond doubt (older ledgers do not say which), else the one of highest speed-up. */
const best = () => rows.find((r) => r.id === ledger.fastest) || rows.filter((r) => r.speedup && r.method !== "plain" && isLossless(r) && r.backend !== "uncached" && r.batch === baseline.batch).sort((a, b) => b.speedup.median - a.speedup.median)[0];
const greedyDone = (tokens) => (ledger.checks.greedy || []).filter((c) => c.method !== "plain" && c.tokens >= tokens);
const windowOf = () => (ledger.models.target && ledger.models.target.config ? ledger.models.target.config.attention_window : null);

const QUESTIONS = [
  [1, "A draft is wrong half-way: are the rows after it wasted?", () => [
    `Yes: everything behind the first rejection is dropped, its rows of p with it. But the forward was needed in any case, since even with no draft accepted it yields one token. And rows before the mistake cannot see it: attention is causal, to within ${small(ledger.checks.causal_max_abs_diff)} in the logits here.`]],
  [1, "How does verification use a key-value cache?", () => [
    "Only the last committed token and the γ drafts are fed, γ+1 rows in all; everything older lies in the cache. The new rows' keys and values are written behind it. Those of rejected drafts are not even erased: the next round starts earlier and overwrites them before any mask can see them."]],
  [1, "The text grows far past the attention window: is it still the same output?", () => {
    const window = windowOf(), checked = greedyDone((window || Infinity) + 1);
    if (!checked.length || !checked.every((c) => c.passed)) return null;
    return [`Yes, at every length. One sliding rule, each query sees the last ${window} positions, holds in training, in plain and in speculative decoding, so they are one generator. Greedy texts of ${count(Math.max(...checked.map((c) => c.tokens)))} tokens: ${count(sum(checked.map((c) => c.identical)))} of ${count(sum(checked.map((c) => c.prompts)))} identical to plain decoding. Where decoding crops the text instead (plain by one symbol a step, verification context and drafts together), the two differ past the window.`];
  }],
  [2, "Why is the law of the output exactly p?", () => {
    const x = closeup.positions[0];
    const here = x ? ` Here Σ min(p, q) = ${number(x.beta, 4)}, so the residual has ${number(1 - x.beta, 4)} to give.` : "";
    return ["A symbol x comes out in one of two ways. Drafted and accepted: q(x) · min(1, p(x)/q(x)) = min(p(x), q(x)). Or after a rejection, which happens with probability 1 − Σ min(p, q), from the residual max(0, p − q), whose sum is that same number: so it adds max(0, p(x) − q(x)). Together p(x)." + here + " Leviathan et al. 2023, §2.3 and appendix A.1; that the mean acceptance is Σ min(p, q) is their Corollary 3.6."];
  }],
  [2, "Why is a symbol with p ≥ q always accepted?", () => ["The drafter proposes it too seldom already. All of these are kept, and the residual adds the missing p − q. Where q > p it is proposed too often, and only a share p/q of it stays."]],
  [2, "What becomes of the rule at temperature 0?", () => {
    const checked = greedyDone(1);
    if (!checked.length || !checked.every((c) => c.passed)) return null;
    return [`p and q are each 1 at one symbol and 0 elsewhere. A draft is accepted if both agree on the best symbol; if not, the residual is the target's best symbol. The text equals plain greedy decoding: ${count(sum(checked.map((c) => c.identical)))} of ${count(sum(checked.map((c) => c.prompts)))} here.`];
  }],
  [2, "Papers disagree on what p and q are. Which is right?", () => ["Both, with the letters exchanged. Leviathan et al. write p for the target and q for the draft, and so does this page; Chen et al. write q for the target: min(1, q/p) and (q − p)₊ are the same rule."]],
  [3, "γ = 8 gives fewer tokens a forward than γ = 6: is the formula wrong?", () => {
    const six = rowOf("draft", 6), eight = rowOf("draft", 8);
    if (!six || !eight || eight.tokens_per_target_forward >= six.tokens_per_target_forward) return null;
    return [`No. α is measured anew in every row: ${alphaText(six)} at γ = 6, ${alphaText(eight)} at γ = 8. With each row's own α eq. (1) gives ${number(six.expected_tokens, 3)} and ${number(eight.expected_tokens, 3)}; measured ${number(six.tokens_per_target_forward, 3)} and ${number(eight.tokens_per_target_forward, 3)}. And acceptances are not independent: hard symbols come in clusters.`];
  }],
  [3, "So many forwards saved, and so little gained on the clock: why?", () => {
    const row = best();
    if (!row || !row.speedup || row.speedup.median >= row.tokens_per_target_forward) return null;
    const draft = models[row.method], share = draft && ledger.models.target ? (100 * draft.parameters) / ledger.models.target.parameters : null;
    const slow = rows.filter((r) => r.speedup && r.speedup.verdict === "slower" && r.method !== "plain" && besideBaseline(r));
    const w = row.waterfall;
    return [
      `The best row, ${row.label}, makes ${number(100 * (1 - 1 / row.tokens_per_target_forward), 0)} % fewer forwards of the target, and is ${times(row.speedup.median)} as fast.` + (isNumber(row.c) && share ? ` The drafter has ${number(share, 0)} % of the target's parameters and takes ${number(100 * row.c, 0)} % of its time: what a forward costs beside arithmetic does not shrink with the model, and γ drafts run one after another.` : ""),
      (w ? `Of its ${number(w.measured, 1)} µs a token, ${number(w.theory, 1)} are what theory counts; verifying γ+1 tokens instead of one adds ${number(w.verify, 1)}, the drafter's catching up and sampling ${number(w.drafting, 1)}, accepting ${number(w.accept, 1)}, the host ${number(w.host, 1)}; ${number(w.positions + w.unexplained, 1)} are left. ` : "") + (slow.length ? `Slower than plain decoding here: ${slow.map((r) => r.label).join("; ")}. ` : "") + "Theorem 3.8 counts forwards alone. Leviathan et al. used drafters two orders of magnitude smaller than the target, with c below 0.05."];
  }],
  [4, "Why is the MTP loss about as low as the main loss?", () => {
    const t = ledger.models.target, m = ledger.models.mtp, d = ledger.models.draft;
    if (!m || !isNumber(m.val_loss) || !isNumber(t.val_loss) || Math.abs(m.val_loss - t.val_loss) > 0.03) return null;
    return [`${number(m.val_loss, 4)} against ${number(t.val_loss, 4)} here. It sees the next token as well, so predicting the one after is the same kind of task, with the target's hidden state in addition; in decoding that next token is one that was really chosen.` + (d && isNumber(d.val_loss) && d.val_loss > m.val_loss ? ` The draft model, ${number(d.val_loss, 4)}, starts from bare text with ${number((100 * d.parameters) / t.parameters, 0)} % of the target's parameters.` : "")];
  }],
  [4, "Acceptance lies in DeepSeek-V3's 85–90 %: is that a replication?", () => {
    const row = rowOf("mtp", 1);
    if (!row || !isNumber(row.alpha) || row.alpha < 0.85 || row.alpha > 0.9) return null;
    return [`No. α = ${alphaText(row)} here, but theirs is a mixture of experts with 671 billion parameters (37 billion active), trained on 14.8 trillion tokens of many kinds; this target has ${count(ledger.models.target.parameters)} and one text. The mechanism works at both ends; the numbers do not confirm each other. (arXiv 2412.19437: §2.2 the module, §5.4.3 acceptance and 1.8× tokens a second.)`];
  }],
  [4, "How do Meta's multi-token heads differ?", () => ["Gloeckle et al. (arXiv 2404.19737) put n independent heads on one shared trunk, each a transformer layer, all in parallel; models with four decode up to three times as fast. DeepSeek's modules stand in sequence: depth k reads the hidden state of depth k−1 and the embedding of token i+k, which keeps the causal chain."]],
  [4, "Did the MTP loss make the target better?", () => {
    const e = ledger.checks.mtp_effect;
    if (!e || Math.abs(e.difference) > 0.03) return null;
    return [`Not visibly here: validation loss ${number(e.with, 4)} with it, ${number(e.without, 4)} without, ${e.seeds === 1 ? "one seed each, and a difference of that size also comes from the seed alone" : `${e.seeds} seeds each`}. Gloeckle et al. report gains for models of 13 billion parameters on code.`];
  }],
  [4, "How do Medusa and EAGLE draft?", () => ["Medusa (arXiv 2401.10774) puts extra heads on the target that guess several places at once, and verifies several candidates in one forward with tree attention. EAGLE (arXiv 2401.15077) drafts features, the layer below the head, one after another, which its authors find easier than drafting tokens. DeepSeek-V3 calls its causal chain close to EAGLE's; EAGLE is made for decoding, MTP first of all for training."]],
];

function questionsOf(step) {
  const answered = QUESTIONS.filter(([at]) => at === step).map(([, question, answer]) => [question, answer()]).filter(([, answer]) => answer);
  return answered.length ? el("div", { class: "card questions" }, el("h3", {}, "Questions"), answered.map(([question, answer]) => el("details", {}, el("summary", {}, question), answer.map((text) => el("p", {}, text))))) : "";
}
