"""Speed, as ratios measured side by side in one run: what `linrnn bench` prints."""
