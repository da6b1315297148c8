"""truecopy inside of other programs: each module speaks to one of them, in its own terms.

What comes in: what that program asks for. What goes out: a call of a verb. A module here imports the
program it is for, and of truecopy nothing until it is used.

    pytest_plugin   a marker for limits, fixtures for limits and for results that must not share memory
"""
