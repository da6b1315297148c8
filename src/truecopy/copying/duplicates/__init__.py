"""Many copies of one value: a list, a stack, views without memory, or clones that copy when written."""
