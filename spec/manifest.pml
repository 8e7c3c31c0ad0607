/* The manifest: numbered versions. All except the newest may be pruned, so a number may be
   created again that existed before.

   Updaters 1 and 2 are the writers of two epochs. Updater 3 is a compactor that folds one
   record with each update. An updater may give up an update before it has an answer.
   Requests may land late, and again. A reader lists the keys one by one, from the highest
   down: that is the worst order for a listing that takes time. A pruner chooses an old
   manifest that every process must have replaced by now.

   With TWO_GETS the reader does not list. It has read manifest n. If it finds n + 1 absent, and
   then n unchanged, it takes n for the newest. That is wrong even where manifests are pruned in
   the order of their numbers, and none is pinned: a late copy of the create of n has the same
   bytes. (With NO_LATE there are no such copies, and it would be right.)

   U updates of each updater, V versions. With ONE there is no updater 2.

check: small  three updaters | -DU=1 -DV=4
check: small  reader | -DU=1 -DV=4 -DREADER -DONE
check: small  pruner | -DU=1 -DV=4 -DPRUNER -DONE
check: long   three updaters, two updates each | -DU=2 -DV=5
mutant: role-epoch     | -DU=1 -DV=4 -DNO_ROLE_EPOCH
mutant: update-count (it is looked for)        | -DU=1 -DV=4 -DNO_COUNT
mutant: update-count (created is not enough)   | -DU=1 -DV=4 -DNO_LOOK
mutant: fold-floor     | -DU=2 -DV=4 -DONE -DNO_FOLD_FLOOR
mutant: manifest-match | -DU=2 -DV=4 -DONE -DREADER -DNO_MATCH
mutant: grace (a listing in steps) | -DU=2 -DV=4 -DONE -DREADER -DNO_GRACE
mutant: newest by LIST (not counted upward) | -DU=2 -DV=4 -DONE -DREADER -DCOUNT_UPWARD
mutant: newest by LIST (not by two GETs)    | -DU=2 -DV=4 -DONE -DREADER -DTWO_GETS
mutant: horizon-junk   | -DU=2 -DV=4 -DONE -DPRUNER -DNO_HORIZON_JUNK
*/
#ifndef U
#define U 1
#endif
#ifndef V
#define V 4
#endif
#define P 3
#define COMPACTOR 3

/* The manifest that an updater has sent under a number. Number and updater identify it. */
typedef Body {
	bool sent;
	byte writer, writer_update;	/* the roles: their last update */
	byte compactor_update;
	byte floor, segments;
	byte applied[P + 1]		/* number of each updater's updates in it */
}
Body body[(V + 2) * (P + 1)];
#define AT(n, p) body[(n) * (P + 1) + (p)]
byte author[V + 2];	/* the updater whose manifest became the newest under the number */
byte newest;
byte listing;		/* the newest when the reader's listing began; 0: no listing */

/* grace: a manifest that was replaced during a listing is not pruned before its end. */
#ifndef NO_GRACE
#define HOLE(n) ((n) < newest && !(listing && (n) >= listing))
#else
#define HOLE(n) ((n) < newest)
#endif

#define NEWEST AT(newest, author[newest])

/* enter makes a version the newest. */
inline enter(n, p) {
	d_step {
		/* A role's holder writes nothing after the next holder has written. */
		assert(NEWEST.writer <= AT(n, p).writer);
		assert(AT(n, p).floor == AT(n, p).segments);
		assert(NEWEST.floor <= AT(n, p).floor);
		author[n] = p; newest = n
	}
}

/* Read the newest manifest, n and a: LIST, then GET. If it was pruned in between, again. */
inline load(n, a) {
	do
	:: atomic { n = newest; a = author[n] };
		if
		:: break
		:: atomic { n != newest -> skip }
		fi
	od
}

proctype Updater(byte p) {
	byte n, a, k, from;
	bool mine;
update:
	if :: k == U -> goto out :: else -> k++ fi;
	load(n, a);
	from = AT(n, a).floor;
again:
	load(n, a);
apply:
	atomic {
		mine = (p == COMPACTOR && AT(n, a).compactor_update == k) || (AT(n, a).writer == p && AT(n, a).writer_update == k);
#ifndef NO_ROLE_EPOCH
		/* role-epoch */
		if
		:: p != COMPACTOR && AT(n, a).writer > p -> goto out
		:: else
		fi;
#endif
#ifndef NO_COUNT
		/* update-count */
		if
		:: mine -> assert(AT(n, a).applied[p] > 0 && NEWEST.applied[p] <= k); goto update
		:: else
		fi;
#endif
#ifndef NO_FOLD_FLOOR
		/* fold-floor: void */
		if
		:: p == COMPACTOR && AT(n, a).floor != from -> goto update
		:: else
		fi;
#endif
		if :: n == V -> goto out :: else fi;
		n++;
		d_step {
			AT(n, p).sent = true;
			AT(n, p).writer = AT(n - 1, a).writer;
			AT(n, p).writer_update = AT(n - 1, a).writer_update;
			AT(n, p).compactor_update = AT(n - 1, a).compactor_update;
			AT(n, p).floor = AT(n - 1, a).floor;
			AT(n, p).segments = AT(n - 1, a).segments;
			AT(n, p).applied[1] = AT(n - 1, a).applied[1];
			AT(n, p).applied[2] = AT(n - 1, a).applied[2];
			AT(n, p).applied[3] = AT(n - 1, a).applied[3];
			AT(n, p).applied[p] = AT(n, p).applied[p] + 1;
			if
			:: p == COMPACTOR ->
				AT(n, p).compactor_update = k;
				AT(n, p).floor = from + 1;
				AT(n, p).segments = AT(n, p).segments + 1
			:: else -> AT(n, p).writer = p; AT(n, p).writer_update = k
			fi;
			/* Each update is applied once or not at all. */
			assert(AT(n, p).applied[p] <= k)
		}
	}
	atomic {
		if
		:: n == newest + 1 -> enter(n, p); mine = true
		:: HOLE(n) -> mine = true	/* created in a hole, where no process reads it */
		:: n <= newest -> mine = false	/* refused */
		:: mine = false			/* no answer */
		fi;
#ifdef NO_LOOK
		if
		:: mine -> assert(NEWEST.applied[p] == k); goto update
		:: else
		fi
#endif
	}
	if
	:: goto again
	:: goto update		/* given up: unknown */
	fi;
out:	skip
}

/* Requests that land late on a number above the newest. In a hole they need no step,
   because HOLE already allows each of them there. */
proctype Network() {
	do
	:: atomic { newest < V && AT(newest + 1, 1).sent -> enter(newest + 1, 1) }
	:: atomic { newest < V && AT(newest + 1, 2).sent -> enter(newest + 1, 2) }
	:: atomic { newest < V && AT(newest + 1, 3).sent -> enter(newest + 1, 3) }
	od
}

/* Read number n: a is the updater whose manifest is found there, 0 for none. */
inline look(n, a) {
	if
	:: n == newest -> a = author[n]
	:: n < newest -> a = author[n]
	:: n > newest -> a = 0
	:: HOLE(n) -> a = 0
	:: HOLE(n) && AT(n, 1).sent -> a = 1
	:: HOLE(n) && AT(n, 2).sent -> a = 2
	:: HOLE(n) && AT(n, 3).sent -> a = 3
	fi
}

/* A late copy of the create of manifest n, of updater a, is applied in the hole. */
#ifndef NO_LATE
#define LATE(n, a) AT(n, a).sent
#else
#define LATE(n, a) false
#endif

proctype Reader() {
	byte n, a, high, high_a, before, remembered, remembered_a;
	do
	:: atomic { before = NEWEST.floor; remembered = newest; remembered_a = author[newest] };
		if :: remembered > 0 -> skip :: break fi;
#ifdef COUNT_UPWARD
		/* Remember one and read the next, until there is none. */
		if
		:: skip
		:: atomic { before = NEWEST.floor }
		fi;
		high = remembered; high_a = remembered_a;
		do
		:: high < V ->
			atomic { look(high + 1, a); if :: a -> high++; high_a = a :: else -> break fi }
		:: high == V -> break
		od;
#elif defined(TWO_GETS)
		atomic { before = NEWEST.floor };
		high = remembered; high_a = remembered_a;
		/* n: manifests up to this number are pruned. All that is there is taken as read. */
		atomic {
			if
			:: high + 1 > newest
			:: high + 1 < newest -> n = high + 1
			:: high + 1 <= newest -> break
			fi
		};
		atomic {
			if
			:: high > n || LATE(high, high_a) -> skip
			:: break	/* absent, or other bytes */
			fi
		};
#else
list:
		atomic { listing = newest; n = V; high = 0 };
		do
		:: n > 0 ->
			atomic {
				look(n, a);
				if :: a && n > high -> high = n; high_a = a :: else fi;
				n--
			}
		:: n == 0 -> break
		od;
		listing = 0;
		/* manifest-match */
		atomic {
			look(high, a);
#ifndef NO_MATCH
			if :: a != high_a -> goto list :: else fi
#else
			if :: a == 0 -> goto list :: else -> high_a = a fi
#endif
		}
#endif
		skip;	/* The reader knows everything that was folded when it began. */
		d_step { assert(AT(high, high_a).floor >= before); n = 0; a = 0; high = 0; high_a = 0; before = 0; remembered = 0; remembered_a = 0 }
		break
	od
}

/* horizon: read an old version by its number. Objects below its floor are deleted. */
proctype Pruner() {
	byte n, a, v, b;
	load(n, a);
	if :: n == 0 -> goto out :: else fi;
	atomic { v = n; do :: v > 1 -> v-- :: break od };
	atomic { look(v, b); if :: b == 0 -> goto out :: else fi };
#ifndef NO_HORIZON_JUNK
	/* horizon-junk */
	if :: AT(v, b).floor > AT(n, a).floor -> goto out :: else fi;
#endif
	assert(AT(v, b).floor <= NEWEST.floor);
out:	skip
}

init {
	atomic {
		run Updater(1); run Updater(3);
#ifndef ONE
		run Updater(2);
#endif
		run Network();
#ifdef READER
		run Reader();
#endif
#ifdef PRUNER
		run Pruner()
#endif
	}
}
