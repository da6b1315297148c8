"""The exact tier: what a run did with memory, as torch's profiler has written it down.

What comes in: the profile of a run that is over, made without any Python mode, so that what kernels do
inside, and every block that the allocator gave and took back, is in it. What goes out: a `Ledger` as
the default tier fills it, from which the same record is made. Nothing is known of a call but what the
profile says: names, shapes, strides and dtypes of arguments, numbers of allocations, lines of callers.
It has no outputs and no exceptions.

    profiling   the profiler around a run: one at a time, its noise kept away
    tree        the profile as plain nodes, read once
    kinship     what only the whole profile tells: whose memory an allocation is
    frames      files, functions and lines: which frame of Python is the user's
    operators   the lines of `x + 1`, of which the profile tells the function alone
    recorded    tensors as a profile describes them
    copying     copies in it: what was written, from what, inside of which kernel
    replay      the run once more, in order, into a ledger
"""
