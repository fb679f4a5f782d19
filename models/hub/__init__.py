"""The Hugging Face hub and its cache on this machine: all that talks to it, and all that writes there.

remote.py asks the hub, through huggingface_hub; cache.py reads and writes the cache that every program of the hub
shares; transfer.py brings one file from the one to the other; files.py chooses among names. What comes from the hub,
names included, is untrusted.
"""
