"""The worker's HTTP door over storage and queue, its page, and the client that speaks to it.
Imports the cluster and what is below.

The server computes nothing: it takes encrypted objects, puts jobs into a queue, and hands results
out. All that it knows lies in the storage, so that it can be stopped, started or run twice at any
time. The extra ``service`` brings what it needs.
"""
