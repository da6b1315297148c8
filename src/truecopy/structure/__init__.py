"""Python structure: kinds of objects, paths, one walker, rebuilding. Knows nothing of memory."""
