/* Locks: many names in one object, a bucket, which is never deleted.

   A bucket has the last token of all its names, and an entry for each name that is held. So a name
   that nobody holds takes no room, and what remains of it is the bucket's token: the floor that the next
   acquisition of any name reads, in the object that it swaps. An entry names its holder's session. A session
   has an object only if it lasts: its holder creates that with the first heartbeat, and then reads
   the buckets of all locks that it holds. Who wants the name puts a placeholder there, if there is nothing, and
   swaps what does not change to expired. Then it takes the entry.

   The model trusts no clock: a process may think at any time that a session has lapsed. A process
   may be slow or dead from any step on, and an answer may be lost. A write of a bucket may land at any
   later time. Somebody may sweep the object of any session at any time, and the create of one may land
   late. (locktime.pml has the clocks.)

   P processes with a session each, N names in one bucket. TRIES is how often a process acquires.

check: small  two processes, one name       | -DP=2 -DN=1 -DTRIES=2
check: small  two processes, two names      | -DP=2 -DN=2 -DTRIES=1
check: small  three processes, of which one sends heartbeats | -DP=3 -DN=1 -DTRIES=1 -DLEAN
check: long   two processes, two names, two tries | -DP=2 -DN=2 -DTRIES=2
check: long   three processes               | -DP=3 -DN=1 -DTRIES=1
mutant: lock-token (each entry has a count of its own)           | -DP=2 -DN=1 -DTRIES=2 -DNO_FLOOR
mutant: lock-depose                                              | -DP=2 -DN=1 -DTRIES=1 -DNO_DEPOSE
mutant: lock-placeholder                                         | -DP=2 -DN=1 -DTRIES=1 -DNO_PLACE
mutant: lock-verify                                              | -DP=2 -DN=1 -DTRIES=1 -DNO_VERIFY
mutant: lock-undo                                                | -DP=2 -DN=1 -DTRIES=2 -DNO_UNDO
*/
#define NOBODY P

/* The bucket. Nobody needs its version: each process knows whether what it read is still there. */
byte token;		/* the last one */
byte holder[N];
byte entry[N];		/* the token of the entry */
byte top[N];		/* the last token of an acquisition that has landed */
byte told[N];		/* the greatest one that somebody was told */

/* Two writes of each process: its acquisition, and what undoes or releases it. */
#define SENT 1
#define LANDED 2
byte acquire[P], drop[P];
bool afresh[P], dfresh[P];	/* the bucket still has the version that this write replaces */
byte name[P], got[P];

/* The sessions. */
#define NONE 0
#define PLACE 1
#define LIVE 2
#define EXPIRED 3
byte session[P];
bool create[P];		/* a create of it was sent, and has not landed */
bool known[P];		/* its holder knows the version */
byte watched[P];	/* the session that this process watches */
bool same[P];		/* and it has the version that was seen */
bool taking[P];		/* it has found that session expired, and may write the bucket */

inline changed(x) { known[x] = false; i = 0; do :: i < P -> if :: watched[i] == x -> same[i] = false :: else fi; i++ :: else -> break od; i = 0 }
inline written() { i = 0; do :: i < P -> afresh[i] = false; dfresh[i] = false; i++ :: else -> break od; i = 0 }

proctype Network() {
	byte p, i;
	do
	:: atomic {
		if :: p = 0 :: p = 1 :: P > 2 -> p = P - 1 fi;
		if
		:: d_step { acquire[p] == SENT && afresh[p] ->
			written(); acquire[p] = LANDED; holder[name[p]] = p; token++;
#ifdef NO_FLOOR
			/* lock-token: without this a name that was released begins again at 1. */
			entry[name[p]]++;
#else
			entry[name[p]] = token;
#endif
			got[p] = entry[name[p]];
			assert(got[p] > top[name[p]]);	/* tokens rise */
			top[name[p]] = got[p] }
		:: d_step { drop[p] == SENT && dfresh[p] ->
			written(); drop[p] = LANDED;
			if :: holder[name[p]] == p -> holder[name[p]] = NOBODY; entry[name[p]] = 0 :: else fi }
		:: d_step { create[p] && session[p] == NONE -> changed(p); create[p] = false; session[p] = LIVE; known[p] = true }
		/* Sweeping. That waits a day, so nobody who has found a session expired is still about to take its lock. */
		:: d_step { session[p] != NONE ->
			i = 0; do :: i < P -> if :: taking[i] && watched[i] == p -> break :: else -> i++ fi :: else -> break od;
			if :: i == P -> changed(p); session[p] = NONE :: else fi }
		fi;
		p = 0; i = 0 }
	od
}

proctype Process(byte me) {
	byte h, tries, beats, n, i;
again:
	if :: tries == TRIES -> goto out :: else -> tries++ fi;
	if :: n = 0 :: N > 1 -> n = N - 1 fi;

	d_step { name[me] = n; h = holder[n]; afresh[me] = true; acquire[me] = 0; got[me] = 0; taking[me] = false };	/* GET */
	if
	:: h == NOBODY || h == me -> goto take	/* a process waits for itself, which is left out */
	:: else
	fi;
#ifndef NO_DEPOSE
	d_step {	/* GET of the session, and a create if there is none */
		watched[me] = h; same[me] = true;
#ifndef NO_PLACE
		if :: session[h] == NONE -> changed(h); session[h] = PLACE; same[me] = true :: else fi
#endif
	};
	/* lock-depose: the session is expired before its lock is taken. Without this: its holder's clock stood
	   still. It goes on to renew the session, and works beside its successor. */
	atomic {
		if
		:: session[h] == EXPIRED -> taking[me] = true
#ifdef NO_PLACE
		/* lock-placeholder: a session without an object is not dead. Without this: its holder creates it later. */
		:: session[h] == NONE && same[me] -> skip
#endif
		:: (session[h] == LIVE || session[h] == PLACE) && same[me] -> changed(h); session[h] = EXPIRED; taking[me] = true
		:: !same[me] && session[h] != EXPIRED -> goto out
		fi
	};
#endif
take:	skip;
	if :: h == me -> goto out :: else fi;
	acquire[me] = SENT;
	if
	:: acquire[me] == LANDED ->
		d_step {
			told[n] = (got[me] > told[n] -> got[me] : told[n]);
			taking[me] = false
		}
	:: acquire[me] == SENT && !afresh[me] -> goto again
#ifndef LEAN
	:: goto undo	/* the answer is lost, and the caller gives up */
#endif
	fi;
#ifdef LEAN
	/* One process sends heartbeats. The others may stop here for ever. */
	if :: me != 0 -> goto out :: me == 0 fi;
#endif
	/* The first heartbeat. */
	if
	:: goto undo	/* the lock is released before it */
	:: session[me] == NONE && !create[me] && !known[me] && beats == 0 -> create[me] = true
	:: known[me]
	fi;
	if
	:: known[me]
	:: session[me] == EXPIRED -> goto out
	:: d_step { session[me] == PLACE -> changed(me); session[me] = LIVE; known[me] = true; create[me] = false }
	:: goto out
	fi;
#ifndef NO_VERIFY
	/* lock-verify: after the first heartbeat the holder reads its locks. Without this: its clock stood still. It was
	   expired, its lock was taken, and what says so was swept. It creates its session anew, and works. */
	if :: atomic { holder[n] != me || entry[n] != got[me] -> goto out } :: atomic { holder[n] == me && entry[n] == got[me] -> skip } fi;
#endif
	/* Each heartbeat. Nobody was told a later token when it is applied. */
	do
	:: d_step { known[me] && beats < 1 -> beats++; assert(told[n] == got[me]); changed(me); known[me] = true }
	:: break
	:: !known[me] -> goto out
	od;
undo:	skip;
	/* lock-undo: who gives up an acquisition makes sure that it cannot land any more. Without this: it lands later,
	   and the name is held for as long as the process lives. */
	d_step { dfresh[me] = true; drop[me] = 0; n = name[me] };	/* GET */
	if
	:: d_step { holder[n] == me && entry[n] != 0 -> skip }
#ifndef NO_UNDO
	:: d_step { holder[n] != me && acquire[me] == SENT && afresh[me] -> skip }
#endif
	:: else -> goto done
	fi;
	drop[me] = SENT;
	if
	:: drop[me] == LANDED -> goto done
	:: drop[me] == SENT && !dfresh[me] -> goto undo
	:: goto out	/* it tries for as long as it lives */
	fi;
done:	skip;
	d_step {
		assert(!(acquire[me] == SENT && afresh[me]));
		assert(holder[n] != me);
		acquire[me] = 0; drop[me] = 0; got[me] = 0
	};
	goto again;
out:	tries = 0; n = 0; h = 0; beats = 0
}

init {
	byte p;
	atomic {
		do :: p < N -> holder[p] = NOBODY; p++ :: else -> break od;
		p = 0;
		do :: p < P -> watched[p] = NOBODY; run Process(p); p++ :: else -> break od;
		p = 0;
		run Network()
	}
}
