"""Text of reports and messages: counts, sentences, Markdown as HTML."""
