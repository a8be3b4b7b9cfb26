"""specmtp: train a GPT with multi-token prediction, watch acceptance rise, measure what speculation pays."""
