"""Measuring: what each way of copying costs here, and what it keeps of what a copy promises.

What comes in: methods, and the axes on which to try them. What goes out: a `BenchResult`, which holds raw
samples, and everything that is said of them is a function of these.

    cells       one cell is one combination of every axis; its methods are measured together
    works       the shapes of work: the input of a cell
    methods     the ways to copy, of torch; `libraries` those of NumPy, JAX and TensorFlow
    kept        a snapshot as a destination, and how one sees what it holds
    uses        what is done with a copy later: the price of a layout, not of the copy
    contract    what a method returned: is it a copy? Asked before any time is taken
    regimes     where the bytes go: fresh memory, recycled memory, a kept destination
    clock       time, page faults and system time; of a device by its events
    rounds      every method once in each round, in an order shuffled anew
    statistics  the ratio to the reference with its interval
    verdict     faster, slower, same, or cannot tell, and why
    faster      the smallest use of all this: is A faster than B, on this input?
    asking      a request that makes sense, by `finding` methods and `sizes`
    opening     a cell made ready to be measured
    api         `bench`: all cells, within a budget
    record      the result; `journal` keeps it on disk while it grows
    comparison  two results side by side; `advice` what one of them says, in words
"""
