"""The pure core: no I/O, no clock, no randomness, no await; they are arguments.

Words of ours, beside those that docs/guarantees.md explains to users:

abandoned   A connection that was left with requests on it; the server is to end it (CLIENT KILL)
            before they are sent again, so that it executes none of them later.
as_of       No change that was complete before this local time was missed by a load. Callers that
            came later ask again.
backlog     Requests that wait for a connection.
companion   A key beside another one, in the same slot of a cluster: a lock, a fence.
copy        The same bytes of a request, sent a second time. A late copy is executed after its twin.
detached    A lease or claim that was handed over: another process continues it, by its token.
effect      What a verb inside a transaction has to tell others after the commit.
fence       A number that grows with each holder of a key, for data to refuse an older one.
flight      A load or call that is under way, and whose result its callers share.
guarded     False: the store was out, and the policy let the caller through. Others may be inside.
hint        The part of a token that may be shown: it names a holding, and opens nothing.
home        The unit of work with which a lease ends.
lent        Detached and not yet continued: renewed here until then.
mark        What stands where a cached value will be while it is loaded. A delete removes it.
note        What a holder or a waiter says about itself to people, in its value or beside the key.
outbox      Requests that must reach the server although nobody waits for them: releases, ends.
secret      The part of a token that proves who holds the key; after an @ comes who it is.
successor   The value to which a key is being changed, until the server has confirmed that.
superseded  A connection that may still deliver a request that was repeated on another one, and
            that the server cannot end: what releases the key is sent on both.
token       The value of a key that is held: the secret, and who holds it.
unit        The transaction of a user in which verbs run; what they tell others waits for its end.
window      How long a claim that is done refuses duplicates, from its end on.

Four ideas are shown as timelines: a late copy (request.py), a delete during a load (cache.py), a
lease that ends while its renewal is on the way (../_async/renewer.py), and here a fence:

    0.0   A acquires the key for 5 s, with fence 100.
    1.0   A is stopped, or its machine is. It cannot see that time passes.
    5.0   The key expires. B acquires it with fence 101, and writes `… WHERE fence < 101`.
    9.0   A continues, and writes before anything tells it that its lease is lost. Its
          `… WHERE fence < 100` changes no row: the data has seen 101.

No lock can refuse the write at 9.0. The data can, by a number that grows with each holder.
"""
