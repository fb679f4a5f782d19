"""One chat, whatever shows it: its messages, its settings and its commands. Nothing here draws or reads a terminal.

`state` holds what a chat is about; `message_tree` its messages as a tree of branches; `conversation_writer` keeps them
on disk; `pair_loader` loads the pair when an answer needs it. `command` says how a command is written down, and
`commands` has the table of all of them. Two renderers show a chat: `cli/line_chat.py` and `tui/turns.py`.
"""
