/* Pins against pruning.

   Version v of the manifest refers to the objects v and later; v + 1 drops object v.
   A reader creates its pin, swaps it, gives it up unless that swap was sent once and
   answered, and reads the newest manifest: the pin is good if the version it names is above the prune mark. A compactor publishes the
   raised mark, lists the pins, expires those that seem to have lapsed, and deletes
   what no other holds. Nobody trusts a clock, so any pin may seem to have lapsed at
   any time: its reader gets an error, and never wrong data.

   Expired pins are deleted later. A copy of a pin's create may land after that (also
   one that the reader sends itself, who has had no answer), then one of its first swap,
   and a copy of the delete behind those. A delete takes no condition, so it must not
   find a pin that holds: one that was never swapped may yet become one, and is deleted
   only when the mark has passed its version, since its reader looks at the mark last.
   Two compactors: one may be a zombie that goes on deleting.

   V versions, R readers.

check: small  one reader, one compactor  | -DV=4 -DR=1 -DC=1
check: full   one reader, two compactors | -DV=3 -DR=1 -DC=2
check: long   two readers, one compactor | -DV=3 -DR=2 -DC=1
mutant: pin-after-mark                                          | -DV=3 -DR=1 -DC=1 -DNO_RECHECK
mutant: mark-before-pins                                        | -DV=3 -DR=1 -DC=1 -DNO_MARK_FIRST
mutant: pinned-objects                                          | -DV=3 -DR=1 -DC=1 -DNO_HOLD
mutant: pin-expire (before it is ignored)                        | -DV=3 -DR=1 -DC=1 -DNO_EXPIRE
mutant: pin-swap (a new pin is swapped)                          | -DV=3 -DR=1 -DC=1 -DNO_CONFIRM
mutant: pin-clean                                                | -DV=3 -DR=1 -DC=1 -DNO_CLEAN
mutant: pin-stillborn                                            | -DV=3 -DR=1 -DC=1 -DNO_STILLBORN
*/
#define RENEWALS 3
byte newest = 1;	/* manifest */
byte mark;		/* in it: nothing is promised of versions up to this one */
bool deleted[V + 1];	/* objects */

#define NONE 0
#define LIVE 1
#define EXPIRED 2
byte pin[R + 1];	/* its state */
byte names[R + 1];	/* the version that it names */
byte version[R + 1];	/* of the pin: a swap counts it up */
bool sent[R + 1];	/* a create was sent; a copy may land */
bool copied[R + 1];	/* its first swap was sent twice */
bool removed[R + 1];	/* a delete was sent; a copy may land */
byte known[R + 1];	/* to its reader: the version that it renews from */
bool held[R + 1];	/* its reader relies on it */

/* A delete takes effect. What holds is only ever taken away by a swap, of which its
   reader is told. */
inline remove(r) {
	assert(!(held[r] && pin[r] == LIVE && version[r] == known[r]));
	pin[r] = NONE
}

proctype Reader(byte r) {
	byte v, i;
	v = newest;
	atomic { sent[r] = true; names[r] = v; pin[r] = LIVE; version[r] = 0 }
#ifndef NO_CONFIRM
	atomic {
		if
		:: pin[r] == LIVE && version[r] == 0 -> version[r] = 1; known[r] = 1
#ifdef NO_CLEAN
		:: pin[r] == LIVE && version[r] == 0 -> version[r] = 1; known[r] = 1; copied[r] = true
#endif
		:: else -> goto lost	/* also if it is not clean: another pin will do */
		fi
	}
#endif
	atomic {
#ifndef NO_RECHECK
		if :: v <= mark -> goto lost :: else fi;
#endif
		held[r] = true
	}
	do
	:: atomic { i = v; do :: i < V -> i++ :: break od };
		if
		:: deleted[i] ->
			/* That must be because the pin was lost. */
			atomic { assert(!(pin[r] == LIVE && version[r] == known[r])); goto lost }
		:: else
		fi
	:: known[r] < RENEWALS ->
		atomic {
			if
			:: pin[r] == LIVE && version[r] == known[r] -> known[r]++; version[r] = known[r]
			:: else -> goto lost
			fi
		}
	:: break
	od;
lost:	atomic { held[r] = false; v = 0; known[r] = 0; i = 0 }
}

/* The table goes on. */
proctype Writer() {
	do
	:: newest < V -> newest++
	:: break
	od
}

proctype Compactor() {
	byte to, r, i, least;
	byte seen;
	do
	:: mark + 1 < newest ->
		atomic { to = mark + 1; do :: to < newest - 1 -> to++ :: break od };
#ifndef NO_MARK_FIRST
		atomic { if :: mark < to -> mark = to :: else fi };
#endif
		least = V + 1;	/* the lowest version that a pin holds */
		r = 1;
		do
		:: r <= R ->
			if
			:: pin[r] == LIVE ->
				seen = version[r];
				if
				:: atomic { least > names[r] -> least = names[r] }
				:: least <= names[r]
				:: skip ->	/* it seems to have lapsed */
#ifndef NO_EXPIRE
					atomic {
						if
						:: pin[r] == LIVE && version[r] == seen -> pin[r] = EXPIRED
						:: pin[r] == LIVE && version[r] != seen -> if :: least > names[r] -> least = names[r] :: else fi
						:: pin[r] != LIVE
						fi
					}
#endif
				fi
			:: pin[r] != LIVE
			fi;
			r++
		:: r > R -> break
		od;
#ifdef NO_MARK_FIRST
		atomic { if :: mark < to -> mark = to :: else fi };
#endif
#ifdef NO_HOLD
		least = V + 1;
#endif
		/* Object i was dropped by version i + 1; pins on i and lower hold it. */
		skip;
		d_step {
			i = 1;
			do
			:: i + 1 <= to && i < least -> deleted[i] = true; i++
			:: i + 1 <= to && i >= least -> break
			:: i + 1 > to -> break
			od;
			to = 0; r = 0; i = 0; least = 0; seen = 0
		}
	:: atomic { r = 1; do :: r < R -> r++ :: break od; 
			if
#ifdef NO_STILLBORN
			:: pin[r] == EXPIRED ->
#else
			:: pin[r] == EXPIRED && (version[r] > 0 || names[r] <= mark) ->
#endif
				removed[r] = true; remove(r)
			:: else
			fi;
			r = 0
		}
	:: break
	od
}

/* Copies. */
proctype Network() {
	byte r;
	do
	:: atomic { r = 1; do :: r < R -> r++ :: break od; 
			if
			:: pin[r] == NONE && sent[r] -> pin[r] = LIVE; version[r] = 0
			:: pin[r] == LIVE && version[r] == 0 && copied[r] -> version[r] = 1
			:: removed[r] -> remove(r)
			:: else
			fi;
			r = 0
		}
	:: break
	od
}

init {
	atomic {
		byte n = 1;
		do :: n <= R -> run Reader(n); n++ :: else -> break od;
		n = 1;
		do :: n <= C -> run Compactor(); n++ :: else -> break od;
		run Writer(); run Network()
	}
}
