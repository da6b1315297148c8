"""The five questions that this project grew from, answered with proof.

What comes in: five widely read articles, claim by claim. What goes out: for each claim a verdict, and a
proof that anybody can run; a run of all of them is an `AnswersRecord`, plain data.

    claims      what an answer is made of: frozen dataclasses; a claim without proof or reason is refused
    proving     the few words that proofs share
    duplicate, methods, allocation, deepcopy, contiguous
                one article each: its proofs, then its claims with their verdicts
    topics      which topics there are, without importing torch; loads one
    running     runs proofs on this installation, times races
    record      the record of such a run
    pages       the pages of docs/answers/, written from all this and from kept figures

A proof is a function without arguments. Its docstring says what is so, its assertions prove that, and
its body is what the page shows. A claim about time is proven by a race: two ways to do one thing, which
are timed against each other where the proof is run, since no figure of another machine proves anything.
"""
