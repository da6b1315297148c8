"""Two files set beside each other: checkpoints, or two records of one kind, whatever room made them.

In: two paths. Out: the comparison of their kind, which is a record. It owns the table of the kinds that
can be compared; how each is compared, its own room knows.
"""
