"""Snapshots: everything that a training run holds, kept in buffers of its own, put back in place.

In: named sources. A look at them (`looking`) gives an `Image`: the objects that hold something, each
with its drawers (`contents`), and the tensors and arrays, laid out by who shares bytes with whom. An
image is reused for as long as a cheap check says that the sources still are as they were found.
Bytes go into a `Kept` (`keeping`), one set of buffers, and back; what the drawers held goes beside them.
Out: `Snapshot` and `Best`, which own the sets, and a file (`store`).

One rule makes restoring simple: a snapshot remembers *which* objects were where, by reference, and *what*
their memory held, by value. Putting back is putting the same objects back into the same places, and the
bytes into the same memory. What is born later is in no recorded place, and so is gone.
"""
