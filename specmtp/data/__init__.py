"""Corpora, vocabulary, windows and the DataModule: text in, windows of ids out."""
