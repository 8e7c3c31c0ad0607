/* Publishing a log's table to a Delta log.

   Edit e of the log adds file e and removes the file of the edit before it. So a file lives as
   briefly as a file can. Manifest m has folded the first fold[m] edits. A compactor publishes
   manifests and raises the mark. It deletes a file that was dropped at or below the mark, if no
   pin is on an earlier manifest. pins.pml shows that the steps of pins and of the mark amount to that.

   A Delta version is an object that is created if absent. It is made from the version before it, and its
   proof fits no other state. It claims a number of edits, and a manifest that a pin holds (the
   hold). Log cleanup deletes old versions. What somebody creates there later is junk: a
   zombie, or a late copy of a create.

   A publisher goes on from the state that it knows, or loads the table. What it reads is what its listing
   has shown, so a load is one step. It reads the log, pins a manifest if it is time, and creates a
   version for each edit or one for all. An answer may be lost. It reports what a load shows.
   Then it lets go: it releases pins below the hold of the oldest version within the retention,
   and deletes versions before a proved checkpoint. It remembers holds of versions that a load has
   shown on the way to the newest one. For other versions, and to delete any, it builds the oldest
   version. The manifest that it pins may be older than the newest one: one that it knew before it read
   the log. Any process may stop or sleep at any step.

   There is no clock. Old is a number that rises: versions below it are older than the retention.

   V is the highest version, E edits, M manifests, J pieces of junk, P publishers, L late copies;
   each K-th version has a checkpoint. MORTAL: a publisher dies and another one begins. FAILURES: checkpoints
   fail, cleanup stops on the way. HINT: _last_checkpoint. FOREIGN: another program writes a wrong
   checkpoint. UNPUBLISH: somebody takes the log out of the table. ZOMBIE: a table is there, and publisher
   P knows the version before the newest and creates one version. SLEEPER: publisher 1 knows the
   newest version and lets go. ALONE: everybody stops at any moment, and then a new publisher must
   publish everything and let go of everything old.

check: small  two publishers                 | -DV=3 -DE=2 -DM=2 -DJ=1 -DL=0 -DP=2 -DK=1
check: small  one, late copies, then alone   | -DV=3 -DE=2 -DM=2 -DJ=1 -DL=1 -DP=1 -DK=1 -DMORTAL -DFAILURES -DALONE
check: small  unpublish                      | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=1 -DK=1 -DUNPUBLISH
check: small  another program                | -DV=3 -DE=2 -DM=2 -DJ=0 -DL=0 -DP=1 -DK=1 -DFOREIGN -DFAILURES -DMORTAL
check: small  a zombie                       | -DV=3 -DE=3 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DZOMBIE
check: full   two publishers, three manifests | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1
check: full   two publishers, a late copy    | -DV=3 -DE=2 -DM=2 -DJ=1 -DL=1 -DP=2 -DK=1
check: full   the hint                       | -DV=3 -DE=2 -DM=2 -DJ=0 -DL=0 -DP=2 -DK=1 -DHINT
check: full   a zombie and a sleeper         | -DV=2 -DE=3 -DM=3 -DJ=1 -DL=0 -DP=3 -DK=1 -DZOMBIE -DSLEEPER
check: long   two publishers and a zombie    | -DV=2 -DE=3 -DM=3 -DJ=1 -DL=0 -DP=3 -DK=1 -DZOMBIE
mutant: delta-create        | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DNO_CREATE
mutant: delta-pin-first     | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DNO_PIN_FIRST
mutant: delta-pin-named     | -DV=3 -DE=3 -DM=3 -DJ=0 -DL=1 -DP=1 -DK=1 -DMORTAL -DNO_PIN_NAMED
mutant: delta-run-holds     | -DV=3 -DE=3 -DM=3 -DJ=1 -DL=0 -DP=1 -DK=1 -DNO_RUN_HOLDS
mutant: delta-inside        | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DNO_INSIDE
mutant: delta-unpin         | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DNO_UNPIN
mutant: delta-fits          | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DNO_FITS
mutant: delta-warm-fits     | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DNO_WARM_FITS
mutant: delta-shown         | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=2 -DK=1 -DNO_SHOWN
mutant: delta-listed        | -DV=2 -DE=3 -DM=3 -DJ=1 -DL=0 -DP=3 -DK=1 -DZOMBIE -DSLEEPER -DNO_LISTED
mutant: delta-tidy-newest   | -DV=2 -DE=3 -DM=3 -DJ=1 -DL=0 -DP=3 -DK=1 -DZOMBIE -DSLEEPER -DNO_TIDY_NEWEST
mutant: delta-checkpoint    | -DV=3 -DE=2 -DM=2 -DJ=0 -DL=0 -DP=1 -DK=1 -DFOREIGN -DFAILURES -DMORTAL -DNO_CHECKPOINT
mutant: delta-clean         | -DV=3 -DE=2 -DM=2 -DJ=0 -DL=0 -DP=1 -DK=1 -DFOREIGN -DFAILURES -DMORTAL -DNO_CLEAN
mutant: delta-hint-first    | -DV=3 -DE=2 -DM=2 -DJ=0 -DL=0 -DP=2 -DK=1 -DHINT -DNO_HINT_FIRST
mutant: delta-last-forward  | -DV=3 -DE=2 -DM=2 -DJ=0 -DL=0 -DP=2 -DK=1 -DHINT -DNO_LAST_FORWARD
mutant: delta-farewell      | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=1 -DK=1 -DUNPUBLISH -DNO_FAREWELL
mutant: delta-idle-hold     | -DV=3 -DE=2 -DM=3 -DJ=1 -DL=0 -DP=1 -DK=1 -DALONE -DNO_IDLE_HOLD
*/
#define IDS (V + 1 + J)	/* of commits: version v has the id v + 1, junk has the others */
#define BAD (IDS + 1)	/* what another program has written */
#define NOBODY 99

byte last;		/* edits in the log */
byte mf = 1, mark;	/* the newest manifest, and the prune mark */
byte fold[M + 1];
bool deleted[E + 2];	/* file e */
byte pins[M + 1];	/* a bit for each process that has a pin on this manifest */

byte newest;		/* Delta version */
byte old;		/* versions below it are older than the retention */
byte slot[V + 2], ck[V + 1];	/* ids of commits and of checkpoints; 0: none */
byte hint;		/* the version that _last_checkpoint names, or 0 */
byte edits[BAD + 1], hold[BAD + 1];	/* what a commit claims */
bool gone[BAD + 1];	/* the log is unpublished */
byte junk;		/* how many pieces there are */
byte jver[J + 2], jbase[J + 2];	/* the version of a piece, and the state that it was made from */

byte lver[2], lbase[2], ledits[2], lhold[2];	/* late copies of creates; version 0: none */
bool lgone[2];
bool foreign;		/* another program has written a checkpoint */
bool alone;		/* everybody has stopped, but for one publisher */

#define ISJUNK(id) (id > V + 1)
#define CHECKPOINT(v) (v % K == 0)
#ifdef FAILURES	/* a checkpoint may fail, and a publisher may die while it deletes */
#define OWED :: true
#define DIES :: break
#else
#define OWED :: else
#define DIES :: else -> break
#endif
#define NEWEST (newest + 1)	/* its id */

inline version_of(id, v) {
	if :: ISJUNK(id) -> v = jver[id - V - 1] :: else -> v = id - 1 fi
}

/* The commit of version v was made from the state id, and proves that. */
#define FITS(v, id) (ISJUNK(slot[v]) && jbase[slot[v] - V - 1] == id || !ISJUNK(slot[v]) && id == slot[v] - 1)
#ifdef NO_CHECKPOINT
#define PROVED(c) (ck[c] != 0)
#else
#define PROVED(c) (ck[c] != 0 && slot[c] == ck[c])
#endif

/* follow applies commits to a state, up to a version. */
inline follow(id, v, to) {
	do
	:: v < to && slot[v + 1] != 0 && FITS((v + 1), id) -> v++; id = slot[v]
#ifdef NO_FITS
	:: v < to && slot[v + 1] != 0 && !FITS((v + 1), id) ->
		v++; id = BAD; jver[J + 1] = v; edits[BAD] = edits[slot[v]]; hold[BAD] = hold[slot[v]]
#endif
	:: else -> break
	od
}

/* build reads a version, from the newest checkpoint c that helps. The id is 0 if there is none. */
inline build(id, v, c, to) {
	c = to; id = 0; v = 0;
	do
	:: id != 0 && v == to -> break
	:: else ->
		if
		:: c > 0 && PROVED(c) -> id = ck[c]; v = c; follow(id, v, to)
		:: c == 0 -> id = slot[0]; v = 0; if :: id != 0 -> follow(id, v, to) :: else fi
		:: else -> id = 0
		fi;
		if
		:: id != 0 && v == to
		:: else -> id = 0; if :: c == 0 -> break :: else -> c-- fi
		fi
	od
}

/* load returns the newest state. It goes on from a state that is known, if that fits. */
inline load(id, v, c, to) {
	if
	:: id != 0 ->
		version_of(id, v); follow(id, v, to);
#ifndef NO_WARM_FITS
		if :: v != to -> id = 0 :: else fi
#endif
	:: else
	fi;
	if :: id == 0 -> build(id, v, c, to) :: else fi;
	v = 0; c = 0
}

/* create puts a commit into slot v. Its id is 0 if the slot is taken. */
inline create(id, v, b, e, h, g) {
	id = 0;
	if
#ifdef NO_CREATE
	:: v <= newest && junk < J ->
#else
	:: v <= newest && slot[v] == 0 && junk < J ->
#endif
		junk++; id = V + 1 + junk; jver[junk] = v; jbase[junk] = b;
		slot[v] = id; edits[id] = e; hold[id] = h; gone[id] = g
	:: v == newest + 1 && v <= V ->
		/* A version is made from the one before it, and goes on. Its file is there. */
		assert(b == NEWEST && e >= edits[b] && !gone[b]);
		newest = v; id = v + 1; slot[v] = id; edits[id] = e; hold[id] = h; gone[id] = g;
		assert(g || !deleted[e])
	:: else
	fi
}

/* copy keeps a create that was sent, if there is room. */
inline copy(v, b, e, h, g) {
	if :: lver[1] == 0 -> lver[1] = v; lbase[1] = b; ledits[1] = e; lhold[1] = h; lgone[1] = g :: else fi
}

/* An engine that begins at the hint can read the table. */
inline readable(v) {
	v = hint;
	if
	:: hint > 0 -> assert(ck[hint] != 0); do :: v < newest -> v++; assert(slot[v] != 0) :: else -> break od
	:: else
	fi;
	v = 0
}

inline release(p, who) { pins[p] = pins[p] & (255 - (1 << who)) }

/* unpin releases the pins below a hold, but for one that its process has taken and not used. */
inline unpin(need, own, who, p) {
	p = 1;
	do
#ifdef NO_UNPIN
	:: p <= M && need > 0 ->
#else
	:: p < need ->
#endif
		pins[p] = pins[p] & (p == own -> 1 << who : 0); p++
	:: else -> break
	od;
	p = 0
}

/* oldest finds the oldest version within the retention, from a version on. The time of a version
   is that of its successor. Junk may have any age. */
inline oldest(first) {
	do
#ifdef NO_INSIDE
	:: first > 0 && slot[first - 1] != 0 && first - 1 >= old -> first--
#else
	:: first > 0 && slot[first - 1] != 0 && first >= old -> first--
	:: first > 0 && slot[first - 1] != 0 && ISJUNK(slot[first]) -> first--
#endif
	:: else -> break
	od
}

/* A publisher goes through four steps. Whatever happens between two parts of one step may as well
   happen before it. */
proctype Publisher(byte me) {
	byte kn;	/* the state that it knows */
	byte end;	/* the edits that it has read */
	byte pin;	/* no version names it yet */
	bool named;	/* but for one whose create had no answer */
	bool single;	/* a version for each edit */
	byte v, c, id, e, h;	/* for one step */

publish:
	atomic { !alone ->
#ifdef ZOMBIE
		if :: me == P && kn == 0 -> kn = 1; goto plan :: me == P && kn != 0 -> goto stop :: else fi;
#endif
#ifdef SLEEPER
		if :: me == 1 && kn == 0 -> kn = 2; goto told :: me == 1 && kn != 0 -> goto stop :: else fi;
#endif
		if
		:: kn != 0 -> goto plan	/* it goes on from what it knew */
		:: kn == 0
#ifdef MORTAL
		:: kn != 0 || pin != 0 -> kn = 0; pin = 0; named = false	/* it dies; another one begins */
#endif
		fi
	}
reload:
	atomic { !alone ->
		h = newest;
#ifdef NO_LISTED
		c = 0
	}
	atomic { !alone ->
#endif
		load(kn, v, c, h);
#ifdef NO_LISTED
		if :: kn == 0 -> goto reload :: else fi;
#endif
		h = 0; assert(kn != 0);	/* the table can be read */
		if :: edits[kn] >= end && end > 0 -> goto reported :: else fi;
plan:
		if
		:: gone[kn] -> if :: pin > 0 -> release(pin, me); pin = 0 :: else fi; goto stop
		:: else
		fi;
		end = last;
		if
		:: edits[kn] == end
		:: edits[kn] == end && hold[kn] > 0 && mf > hold[kn] -> goto pinning	/* a version without an edit */
		:: edits[kn] < end && hold[kn] > 0 -> single = true; goto pinning
		:: edits[kn] < end -> goto pinning
		fi;
reported:
		/* What is reported is in the table. */
		assert(edits[NEWEST] >= end); end = 0; goto told;
pinning:
		if
		:: pin > 0 && pin <= hold[kn] ->	/* the table needs another one */
#ifndef NO_PIN_NAMED
			if :: named :: else -> release(pin, me) fi;
#else
			release(pin, me);
#endif
			pin = 0; named = false
		:: else
		fi;
		if
		:: pin == 0 && mf > hold[kn] -> pin = mf;
			/* Or a manifest that it knew before. The mark is read when the pin is there. */
			if :: mf - 1 > hold[kn] && mf - 1 > mark -> pin = mf - 1 :: true fi;
#ifndef NO_PIN_FIRST
			pins[pin] = pins[pin] | (1 << me)
#endif
		:: pin > 0 || hold[kn] > 0	/* it has one; or it is not time for a new one */
		fi;
		if :: edits[kn] == end && pin == 0 -> end = 0; goto told :: else fi
	}
next:
	atomic { !alone ->
		version_of(kn, v); v++;
		e = (single -> edits[kn] + 1 : end);
#ifdef NO_RUN_HOLDS
		h = (pin > 0 -> pin : hold[kn]);
#else
		h = (pin > 0 && e == end -> pin : hold[kn]);
#endif
		if
		:: true ->
			create(id, v, kn, e, h, false);
			if
			:: id != 0 ->
#ifdef COPIES
				if :: copy(v, kn, e, h, false) :: true fi;
#endif
#ifndef HINT
				if :: CHECKPOINT(v) && ck[v] == 0 -> ck[v] = id OWED fi;
#endif
				kn = id; if :: h == pin -> pin = 0; named = false :: else fi
			:: else -> single = false; if :: v > V || slot[v] == 0 -> goto stop :: else fi
			fi
		:: L > 0 && lver[1] == 0 ->	/* no answer */
			copy(v, kn, e, h, false);
			id = 0; kn = 0; single = false; if :: h == pin -> named = true :: else fi
		fi;
		v = 0; e = 0; h = 0;
#ifdef ZOMBIE
		if :: me == P -> goto stop :: else fi;
#endif
		if :: id == 0 -> goto reload :: else -> id = 0 fi
	}
#ifdef HINT
	if
	:: atomic { !alone -> version_of(kn, v); if :: CHECKPOINT(v) && ck[v] == 0 -> ck[v] = kn :: else fi; v = 0 };
		atomic { !alone -> version_of(kn, v);
#ifdef NO_LAST_FORWARD
			if :: CHECKPOINT(v) -> hint = v :: else fi;
#else
			if :: CHECKPOINT(v) && v > hint -> hint = v :: else fi;
#endif
			readable(v)
		}
	:: true
	fi;
#endif
	if
	:: edits[kn] < end -> goto next
	:: else -> single = false;
#ifndef NO_SHOWN
		goto reload
#else
		goto reported
#endif
	fi;

told:
	/* Let go of what is old, as of a listing. That may be the one of the load before. */
	atomic { !alone ->
#ifdef NO_TIDY_NEWEST
		version_of(kn, h);
#else
		h = newest;
#endif
		oldest(h);
#ifdef NO_LISTED
		skip
	}
	atomic { !alone ->
#endif
		/* It may remember what a load has shown, and then it deletes no version. It never remembers
		   junk: no load goes from there to the newest version. */
		if
		:: !ISJUNK(slot[h]) && slot[h] != 0 -> id = slot[h]
		:: build(id, v, c, h)
		fi;
#ifdef NO_CLEAN
		if :: id != 0 -> c = h :: else fi;
#endif
		v = 0; h = 0;
		if :: id == 0 -> c = 0; goto publish :: else fi
	}
	/* It may sleep here. What it releases and deletes was dead when it was listed. */
	atomic { !alone ->
		unpin(hold[id], pin, me, v);
#if defined(HINT) && !defined(NO_HINT_FIRST)
		if :: c > hint -> hint = c :: else fi;
#endif
		v = 0;
		do :: v < c -> slot[v] = 0; ck[v] = 0; v++ DIES od;
		readable(v);
		id = 0; v = 0; c = 0
	}
	goto publish;
stop:	skip
}

#ifdef UNPUBLISH
proctype Unpublisher() {
	byte kn, v, c, id, e, h;
reload:
	atomic { !alone ->
		kn = 0; h = newest;
#ifdef NO_LISTED
		c = 0
	}
	atomic { !alone ->
#endif
		load(kn, v, c, h); h = 0;
#ifdef NO_LISTED
		if :: kn == 0 -> goto reload :: else fi
#endif
		assert(kn != 0)
	}
	if
	:: gone[kn] -> goto letgo
#ifdef NO_FAREWELL
	:: !gone[kn] && hold[kn] == 0 -> goto letgo
#endif
	:: !gone[kn] ->
		atomic { !alone ->
			version_of(kn, v); v++; e = edits[kn]; h = hold[kn];
			if
			:: create(id, v, kn, e, h, true)
			:: L > 0 -> copy(v, kn, e, h, true)	/* no answer */
			fi;
			c = v; v = 0; e = 0; h = 0; id = 0
		}
		if :: c <= V -> goto reload :: else -> goto stop fi
	fi;
letgo:
	atomic { !alone -> v = 1; do :: v <= M -> pins[v] = 0; v++ :: else -> break od; v = 0 }
stop:	skip
}
#endif

proctype World() {
	byte v, c, id, e;
	do
	:: d_step { !alone && last < E -> last++ }
	:: d_step { !alone && mf < M -> mf++; fold[mf] = last }
	:: d_step { !alone && mark + 1 < mf ->
			mark = mf - 1;
			c = 1;	/* the lowest manifest with a pin */
			do :: c <= M && pins[c] == 0 -> c++ :: else -> break od;
			e = 1;
			do
			:: e < last && fold[mark] > e ->
				/* It was dropped by the first manifest that has folded the next edit. */
				v = 1; do :: fold[v] <= e -> v++ :: else -> break od;
				if :: c >= v -> deleted[e] = true :: else fi;
				e++
			:: else -> break
			od;
			/* Each version within the retention has its file. */
			v = newest;
			do
			:: gone[NEWEST] -> break
			:: else ->
				assert(!deleted[edits[v + 1]]);
				if :: v > 0 && v >= old -> v-- :: else -> break fi
			od;
			v = 0; c = 0; e = 0
		}
	:: d_step { !alone && old <= newest -> old++ }
#ifdef FOREIGN
	:: atomic { !alone && !foreign && newest > 0 ->
			v = newest; do :: v > 1 -> v-- :: break od;
			if :: ck[v] == 0 -> ck[v] = BAD; jver[J + 1] = v; foreign = true :: else fi;
			v = 0
		}
#endif
#ifdef ALONE
	:: atomic { !alone && newest < V && !gone[NEWEST] -> alone = true;
			/* A publisher begins with nothing. */
			e = newest; load(id, v, c, e); assert(id != 0);
			e = edits[id];
#ifdef NO_IDLE_HOLD
			if :: e < last -> skip
#else
			if :: e < last || hold[id] > 0 && hold[id] < mf -> skip
#endif
			:: else -> goto tidy
			fi;
			/* It publishes everything. */
			assert(mf > mark); pins[mf] = pins[mf] | 1;
			v = newest + 1; c = id; create(id, v, c, last, mf, false);
			assert(id != 0); e = newest; load(id, v, c, e); assert(edits[id] == last);
tidy:
			/* And when the retention has passed, it holds only the newest manifest. */
			old = newest + 1;
			c = newest; oldest(c); e = c; build(id, v, c, e); assert(id != 0);
			e = hold[id]; unpin(e, 0, 0, v);
			v = 1; do :: v < mf -> assert(e == 0 || pins[v] == 0); v++ :: else -> break od
		}
#endif
	:: atomic { !alone && lver[1] > 0 ->	/* a late copy lands */
			create(id, lver[1], lbase[1], ledits[1], lhold[1], lgone[1]); id = 0;
			if :: lver[1] = 0; lbase[1] = 0; ledits[1] = 0; lhold[1] = 0; lgone[1] = false :: true fi
		}
	od
}

init {
	atomic {
		slot[0] = 1;
#ifdef ZOMBIE
		/* There is a version with an edit, which the zombie does not know. */
		last = 1; pins[1] = 1;
		newest = 1; slot[1] = 2; ck[1] = 2; edits[2] = 1; hold[2] = 1;
#endif
		byte n = 1;
		do :: n <= P -> run Publisher(n); n++ :: else -> break od;
#ifdef UNPUBLISH
		run Unpublisher();
#endif
		run World()
	}
}
