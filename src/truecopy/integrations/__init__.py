"""What ties truecopy into other programs. Each module needs its own, and is imported by nobody here.

`lightning` and `transformers`: callbacks that keep the best weights of a run in memory. Both are a
`BestOfRun` (`best_of_run`) that is told when to look; it owns what is kept, and knows nothing of either.
"""
