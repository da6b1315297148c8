"""See inside a model: keep every value that it makes, as it was at that moment.

What comes in: calls of modules and of torch functions, with the live tensors, from the stream of tracing.
What goes out: a `Capture`, a mapping from names to values in the order of the run. What it owns: names, and
the memory of the values.

    names, selection, places, functions    what a value is called, and whether it is wanted
    observing, fastpaths, compiling        what is done at each call, and what must not be disturbed
    keeping, structures, leaves            values kept as they were: tensors, and what is around them
    statistics, budget, spilling           what is kept where the value itself is not, or not in memory
    gradients, attention                   what belongs to a value and was not there when it was kept
    entries, record, tree, absent          what was captured, what is told of it, what was not and why
    store                                  captures on disk and back
    capture                                the verb
"""
