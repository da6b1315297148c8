"""Reports of what was measured: tables for the terminal, plots, one page.

words      numbers and notes as people read them; what all forms share
terminal   a table for each cell
plots      the ratio to the reference over size with its band, and time over size (matplotlib)
page       one HTML file without scripts
"""
