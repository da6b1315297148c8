"""What the record of a trace looks like: as text, as a page, as a timeline, and beside another.

What comes in: a `TraceRecord`, or two of them compared. What goes out: text. Each module is one form of
it; what all forms say in the same words, they say through `words`.

    words      the first sentence, short names of files, what a place is called
    terminal   plain text, worst first
    page       the data of the HTML page, bounded in bytes, and the page itself
    events     which events a page keeps of each storage
    perfetto   Chrome's trace format: nested slices, counters, arrows from forward to backward
    changes    two traces: as text and as Markdown
"""
