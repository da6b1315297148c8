"""Seeing what a run does with memory: one stream of events, and who reads it.

What comes in: calls of torch functions and operations that torch dispatches, with the live tensors, at
the moment when they happen. What goes out: a `TraceRecord`, plain data that reports are functions of.

    stream      calls and operations of a thread, shown to one observer as they happen
    operations  what is to know of an operation before it runs: where its tensors stand, what it writes
    modules     which module is running
    compiled    where compiled regions begin and end, for the modes to step aside
    sites       places in source files
    verdict     what one call did: origins of its outputs, effects on its arguments
    ledger      the observer behind `tc.trace`: numbers by line, while the program runs
    storages    every storage that the run met; ownership, rounds, timeline, nodes: what is told of them
    hiding      hidden copies by line and reason, from copies; churn, habits: what could be done better
    survivors   what iterations leave behind, and who holds it; blind: what was not seen
    building    from a ledger to a record; instead: a line as it could be written
    facts       what can be said of a run: frozen dataclasses; the words of origins, effects, phases, owners
    encoding    facts as JSON-able data and back
    record      the record of a trace
    comparison  two of them: what got better and worse, by line
    limits      limits that a run must keep, and what passes them
    expecting   the same for a block of code: the lines that broke a limit
    watched     memory that is watched: who comes near it, and what changed in it unseen
    watching    who writes into it, told before it is done
"""
