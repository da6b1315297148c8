"""One HTML file for a record: offline, without anything that it loads, and safe whatever the names in it.

What comes in: plain data and the names of the style and script that show it. What goes out: the text of
the page. `page.css` and `page.js` are the frame that every kind of record shares: theme, search, keys,
tables whose rows open, links to a row. `trace.css` and `trace.js` show a trace within it.
"""
