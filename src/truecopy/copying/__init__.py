"""Exact copies: a plan, memory for it, the transfer, and the structure made again."""
