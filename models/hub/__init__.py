"""The Hugging Face hub and its cache on this machine: all that talks to it, and all that writes there.

remote.py asks the hub, through huggingface_hub; cache.py reads and writes the cache that every program of the hub
shares; transfer.py brings one file from the one to the other; files.py chooses among names. What comes from the hub,
names included, is untrusted.

Nothing is told about this machine that a download does not need, and what the library has to say it says in errors:
its own warnings would show a server's words as they came. Both are settings that it reads when it is imported.
"""

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_VERBOSITY", "critical")
