"""Is speculation lossless here? Questions to a loaded pair: why two texts fork, and whether a rule keeps the
distribution.

The proof that the rules are exact is the enumeration in the tests. This checks what a proof cannot: this build of
llama.cpp, these files, this machine.
"""
