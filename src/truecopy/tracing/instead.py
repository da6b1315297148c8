"""How a line that churns would be written: in its own words, where they can be read."""

from __future__ import annotations

import ast
import linecache

from truecopy.tracing.facts import Site


def instead_of(site: Site, name: str, how: str) -> str:
    """How a line that churns would be written; in its own words where they can be read."""
    if not how:
        return ""
    if how == "out":
        return f"torch.{name}(..., out=...)"
    try:
        node = ast.parse(segment(site), mode="eval").body
    except (SyntaxError, ValueError):
        return f".{name}_(...)"
    match node:
        case ast.BinOp(left=left, right=right):
            return f"{ast.unparse(left)}.{name}_({ast.unparse(right)})"
        case ast.Call(func=ast.Attribute(value=value), args=args) if not (
            isinstance(value, ast.Name) and value.id in ("torch", "F")
        ):
            return f"{ast.unparse(value)}.{name}_({', '.join(map(ast.unparse, args))})"
        case ast.Call(args=[first, *args]):
            return f"{ast.unparse(first)}.{name}_({', '.join(map(ast.unparse, args))})"
    return f".{name}_(...)"


def segment(site: Site) -> str:
    """The part of its line that a site is."""
    line = linecache.getline(site.file, site.line)
    if site.end_line != site.line or site.column < 0:
        return ""
    return line[site.column : site.end_column]
