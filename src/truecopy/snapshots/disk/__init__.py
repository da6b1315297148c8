"""A snapshot on disk: one safetensors file, tensors under their own names, the rest as JSON in its metadata.

In: a kept set and the image that it was filled from. `describing` turns them into named bytes and a
`Description`, which is plain data; `writing` puts both into a file, whole or not at all. The other way,
`reading` checks a file, and `binding` lays its description beside live sources: all that does not fit is
named in one error, before anything is written.

Where tensors are sharded over processes (`shards`), the same description says how they are in one process,
and torch.distributed.checkpoint writes and reads the bytes, from and into the parts that each process has.
"""
