"""The texts of a batch of documents as arrays: characters, words, lines and repeated passages, for the text scores."""
