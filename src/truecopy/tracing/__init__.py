"""Seeing what a run does with memory: one stream of events, and who reads it.

What comes in: calls of torch functions and operations that torch dispatches, with the live tensors, at
the moment when they happen. What goes out: a `TraceRecord`, plain data that reports are functions of.

    facts       what can be said of a run: frozen dataclasses; the words of origins, effects, phases, owners
    encoding    facts as JSON-able data and back
    record      the record of a trace
    comparison  two of them: what got better and worse, by line
"""
