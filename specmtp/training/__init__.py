"""Training: losses, optimiser and schedule, and the two LightningModules."""
