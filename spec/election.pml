/* The election: numbered locks. All except the highest may be pruned at any time.

   The model trusts no clock: a candidate may think at any time that a lock has lapsed.
   A process may be slow or dead from any step on. A create that was sent may land again
   at any later time. So may a swap that was sent twice or got no answer. So a read of a
   lock below the highest may find nothing, or any of these.

   P candidates, M epochs. TRIES is how often a candidate starts again.

check: small  two candidates, three epochs | -DP=2 -DM=3 -DTRIES=4
check: small  three candidates, three epochs | -DP=3 -DM=3 -DTRIES=1
check: full   three candidates, three epochs, two tries   | -DP=3 -DM=3 -DTRIES=2
check: long   three candidates, three epochs, three tries | -DP=3 -DM=3 -DTRIES=3
check: long   three candidates, four epochs | -DP=3 -DM=4 -DTRIES=2
mutant: depose-first                            | -DP=2 -DM=3 -DNO_DEPOSE
mutant: higher-lock                             | -DP=3 -DM=4 -DNO_LIST
mutant: higher-lock (any, not only the next)    | -DP=3 -DM=4 -DWEAK_LIST
mutant: win-swap                                | -DP=2 -DM=3 -DNO_CONFIRM
mutant: clean-swap                              | -DP=2 -DM=3 -DNO_GAP
*/
#ifndef P
#define P 3
#endif
#ifndef M
#define M 4
#endif
#ifndef TRIES
#define TRIES 2
#endif

/* A version of a lock has its writer and the number of that writer's write. */
#define VERSION(who, k) ((who) * 4 + (k))
#define CREATED 0
#define CONFIRMED 1
#define AGAIN 2
#define RENEWED 3
#define BIT(who) (1 << (who))

byte newest;		/* the highest lock; it is never pruned */
bool expired;		/* whether the highest lock is expired */
byte version;		/* of the highest lock */
byte created[M + 2];	/* bits of the candidates that have sent a create of the lock */
byte copied[M + 2];	/* bits of those of whose first confirming swap a copy may land */
bool deposed[M + 2];	/* the lock has been expired */
byte last[M + 2];	/* its version, if it was not expired when the next lock was created */

byte top;		/* the highest epoch that was won */

/* Whether version v may be found in the place of lock n, which may have been pruned. */
#define MAYBE(n, v) ((v) % 4 == CREATED && (created[n] & BIT((v) / 4)) || (v) % 4 == CONFIRMED && (created[n] & copied[n] & BIT((v) / 4)))

/* swap replaces version old of lock n. */
inline swap(n, old, now, over, ok) {
	if
	:: n == newest && !expired && version == old -> version = now; expired = over; ok = true
	:: n < newest && last[n] == old -> last[n] = (over -> 0 : now); ok = true
	:: n < newest && MAYBE(n, old) -> ok = true
	:: n < newest || expired || version != old -> ok = false
	fi
}

proctype Candidate(byte me) {
	byte n, v, t, tries;
	bool ok;
again:
	if :: tries == TRIES -> goto out :: else -> tries++ fi;
	atomic { n = newest; v = 0; t = 0; ok = false };	/* LIST */
	if
	:: n == 0 -> t = 1
	:: else ->
		atomic {	/* GET */
			if
			:: n == newest && !expired -> v = version
			:: n == newest && expired -> t = n + 1
			:: n < newest -> goto again	/* gone */
			:: n < newest && deposed[n] -> t = n + 1
			:: n < newest && (created[n] & BIT(1)) -> v = VERSION(1, CREATED)
			:: n < newest && (created[n] & BIT(2)) -> v = VERSION(2, CREATED)
			:: n < newest && (created[n] & BIT(3)) -> v = VERSION(3, CREATED)
			:: n < newest && (copied[n] & BIT(1)) -> v = VERSION(1, CONFIRMED)
			:: n < newest && (copied[n] & BIT(2)) -> v = VERSION(2, CONFIRMED)
			:: n < newest && (copied[n] & BIT(3)) -> v = VERSION(3, CONFIRMED)
			fi
		}
		if
		:: t == 0 ->
			/* The holder has not renewed for what seems to be long enough. */
#ifndef NO_DEPOSE
			atomic {
				swap(n, v, VERSION(me, AGAIN), true, ok);
				if
				:: ok -> deposed[n] = true
				:: else -> goto again
				fi
			}
#endif
			t = n + 1
		:: else
		fi
	fi;
	if :: t > M -> goto out :: else fi;
	atomic {
		created[t] = created[t] | BIT(me);
		if
		:: t == newest + 1 -> last[newest] = (expired -> 0 : version); newest = t; expired = false; version = VERSION(me, CREATED)
		:: t < newest -> skip		/* the create lands in a hole */
		:: t <= newest -> goto again
		fi
	}
	v = VERSION(me, CREATED);
#ifndef NO_CONFIRM
	atomic {
		swap(t, v, VERSION(me, CONFIRMED), false, ok);
		v = VERSION(me, CONFIRMED);
		if
		:: !ok -> goto again
		:: ok -> goto check
		:: ok -> copied[t] = copied[t] | BIT(me)
		fi
	}
#ifndef NO_GAP
	/* A copy of the swap may land after a copy of the create, so swap again. */
	atomic {
		swap(t, v, VERSION(me, AGAIN), false, ok);
		v = VERSION(me, AGAIN);
		if :: !ok -> goto again :: else fi
	}
#endif
check:
#endif
#ifdef WEAK_LIST
	if :: atomic { t + 1 <= newest -> goto again } :: atomic { t + 1 != newest -> skip } fi;
#endif
	atomic {
#if !defined(NO_LIST) && !defined(WEAK_LIST)
		if :: newest > t -> goto again :: else fi;
#endif
		/* Each epoch is won once, and epochs rise. */
		assert(top < t);
		top = t
	}
	/* A leader whose heartbeat succeeds has no successor. */
	atomic {
		swap(t, v, VERSION(me, RENEWED), false, ok);
		v = VERSION(me, RENEWED);
		if
		:: ok -> assert(top <= t)
		:: else -> goto out
		fi
	}
	/* Release the lock, or do not. */
	if
	:: atomic { swap(t, v, VERSION(me, RENEWED), true, ok); if :: ok -> deposed[t] = true :: else fi }
	:: skip
	fi;
out:	n = 0; v = 0; t = 0; ok = false; tries = 0
}

init {
	atomic {
		byte c = 1;
		do :: c <= P -> run Candidate(c); c++ :: else -> break od
	}
}
