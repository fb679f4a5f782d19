"""The commands of a chat: everything that begins with a slash. // sends a literal one.

`table` lists them and finds the one that is meant; the other modules hold what they do, by what they act on.
"""
