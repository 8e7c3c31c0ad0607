/* Pins against pruning.

   Version v of the manifest refers to objects v and later. Version v + 1 drops object v.

   A reader creates its pin and swaps it. It keeps the pin only if that swap was sent once
   and answered. Then it reads the newest manifest. The pin is good if its version is above
   the prune mark.

   A compactor publishes the raised mark and lists the pins. It expires those that seem to
   have lapsed, and deletes the objects that no other pin protects. No clock is trusted, so
   any pin may seem to have lapsed at any time. Then its reader gets an error, and never
   wrong data.

   Expired pins are deleted later. After that, a copy of the pin's create may land; the
   reader itself may send one if it got no answer. Then a copy of its first swap may land,
   and then a copy of the delete. A delete takes no condition, so it must not hit a good
   pin. A pin that was never swapped may still become good. It is deleted only when the
   mark has passed its version, because its reader reads the mark last. With two
   compactors, one may be a zombie that continues to delete.

   With LEADER the leader prunes manifests too, for a log that no compactor prunes, but perhaps
   beside one that begins at that moment. It publishes the mark, lists the pins, and deletes
   the manifests below the mark that no pin names. It expires no pin, and deletes no other
   object.

   V versions, R readers, C compactors.

check: small  one reader, one compactor  | -DV=4 -DR=1 -DC=1
check: small  one reader, the leader     | -DV=3 -DR=1 -DC=0 -DLEADER
check: full   one reader, the leader, one compactor | -DV=3 -DR=1 -DC=1 -DLEADER
check: full   one reader, two compactors | -DV=3 -DR=1 -DC=2
check: long   two readers, one compactor | -DV=3 -DR=2 -DC=1
mutant: pin-after-mark                                          | -DV=3 -DR=1 -DC=1 -DNO_RECHECK
mutant: mark-before-pins                                        | -DV=3 -DR=1 -DC=1 -DNO_MARK_FIRST
mutant: pinned-objects                                          | -DV=3 -DR=1 -DC=1 -DNO_HOLD
mutant: pin-expire (before it is ignored)                        | -DV=3 -DR=1 -DC=1 -DNO_EXPIRE
mutant: pin-swap (a new pin is swapped)                          | -DV=3 -DR=1 -DC=1 -DNO_CONFIRM
mutant: pin-clean                                                | -DV=3 -DR=1 -DC=1 -DNO_CLEAN
mutant: pin-stillborn                                            | -DV=3 -DR=1 -DC=1 -DNO_STILLBORN
mutant: mark-before-pins (of the leader)                        | -DV=3 -DR=1 -DC=0 -DLEADER -DNO_LEADER_MARK_FIRST
mutant: pinned-manifest (of the leader)                         | -DV=3 -DR=1 -DC=0 -DLEADER -DNO_PINNED_MANIFEST
*/
#define RENEWALS 3
byte newest = 1;	/* manifest */
byte mark;		/* prune mark: nothing is promised about versions up to this one */
bool deleted[V + 1];	/* objects */
bool gone[V + 1];	/* manifests */

#define NONE 0
#define LIVE 1
#define EXPIRED 2
byte pin[R + 1];	/* its state */
byte names[R + 1];	/* the manifest version that the pin names */
byte version[R + 1];	/* number of swaps of the pin */
bool sent[R + 1];	/* a create was sent; a copy may land */
bool copied[R + 1];	/* its first swap was sent twice */
bool removed[R + 1];	/* a delete was sent; a copy may land */
byte known[R + 1];	/* the value of version that its reader expects */
bool held[R + 1];	/* its reader relies on the pin */

/* A delete takes effect. A pin that a reader relies on may end only by a swap, which makes
   the reader's next swap fail. */
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
		:: else -> goto lost	/* also if the swap was not clean: the reader takes another pin */
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
			/* The pin must be lost. */
			atomic { assert(!(pin[r] == LIVE && version[r] == known[r])); goto lost }
		:: else
		fi
	:: gone[v] ->
		atomic { assert(!(pin[r] == LIVE && version[r] == known[r])); goto lost }
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

/* New versions appear. */
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
		least = V + 1;	/* the lowest version that a pin names */
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
		/* Object i was dropped by version i + 1; pins on i and lower protect it. */
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

#ifdef LEADER
proctype Leader() {
	byte to, r, i;
	bool pinned[V + 1];
	do
	:: mark + 1 < newest ->
		atomic { to = mark + 1; do :: to < newest - 1 -> to++ :: break od };
#ifndef NO_LEADER_MARK_FIRST
		atomic { if :: mark < to -> mark = to :: else fi };
#endif
		r = 1;
		do
		:: r <= R -> atomic { if :: pin[r] == LIVE -> pinned[names[r]] = true :: else fi; r++ }
		:: r > R -> break
		od;
#ifdef NO_LEADER_MARK_FIRST
		atomic { if :: mark < to -> mark = to :: else fi };
#endif
		skip;
		d_step {
			i = 1;
			do
			:: i < to ->
#ifdef NO_PINNED_MANIFEST
				gone[i] = true;
#else
				if :: !pinned[i] -> gone[i] = true :: else fi;
#endif
				pinned[i] = false; i++
			:: else -> break
			od;
			do :: i <= V -> pinned[i] = false; i++ :: else -> break od;
			to = 0; r = 0; i = 0
		}
	:: break
	od
}
#endif

/* Late copies of requests. */
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
#ifdef LEADER
		run Leader();
#endif
		run Writer(); run Network()
	}
}
