"""The report on the data set: sums over its shards, charts, and the page that holds them."""
