"""Conversations, kept while they happen: trees of messages in one SQLite file that several processes may share.

`store.Store` is what the faces use; `records` what it hands out; `database` opens the file and says what is wrong with
it; `sending` makes a request's messages of a path; `export` writes a conversation for other programs and people.
"""
