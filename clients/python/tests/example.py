"""The program of docs/agent.md: example.py URL. It may be killed and started again: each word is in the log once."""

import sys

import fencepost

words = ["alpha", "beta", "gamma", "delta"]

for _ in range(2):
    with fencepost.lead(sys.argv[1]) as session:  # waits until this process leads
        skip = int(session.cursor or 0)
        for n, word in enumerate(words[skip:], skip + 1):
            session.append(word, cursor=str(n))  # returns a future; raises Fenced when deposed
        session.flush()  # all of it is in the history, for ever

assert [r.value.decode() for r in fencepost.read(sys.argv[1])] == words
