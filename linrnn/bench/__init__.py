"""Speed, as ratios measured in one run: what `linrnn bench` prints."""
