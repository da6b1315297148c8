"""truecopy inside of other programs: each module speaks to one of them, in its own terms.

What comes in: what that program asks for. What goes out: a call of a verb. Each module needs the program
that it is for, and is imported by nobody here.

    pytest_plugin   a marker for limits, fixtures for limits and for results that must not share memory
    lightning       a callback that keeps the best weights of a run in memory
    transformers    the same for its Trainer
    best_of_run     what those two share: it is told when to look, owns what is kept, and knows neither
"""
