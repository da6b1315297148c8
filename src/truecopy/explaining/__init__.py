"""What each operation of torch does with memory: seen in samples, kept as data, looked up by name.

What comes in: samples of torch's own operator database, and samples of ours for what it leaves out
(`samples`, `ours`, `listed`), each tried on inputs that lie in memory in several ways (`layouts`).
What goes out: for each operation an `Explanation`, which is a record: the origins that were seen for
each way of lying, what autograd keeps, what is copied inside, the trap and what to write instead
(`facts`, `advice`).

    watching    runs samples, and notes what they did
    building    every operation, into data/operations.json: `python -m truecopy.explaining`
    lookup      `tc.explain("reshape")`: reads the data, and needs no operation to run

It owns the data. Nothing in it is from memory but the advice, and that is about what was seen.
"""
