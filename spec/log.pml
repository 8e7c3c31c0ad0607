/* The log: opening, pipelined appending, folding, pruning, the tail hint, a reader.

   Slots are objects that are created if absent. A request that was sent may land at any
   later time, and again after its object was pruned. Its sender may have got no answer. A
   process may be slow or dead from any step on. There are no clocks. The history is the
   chain of the slots' first objects. The model compares it with what a writer or reader
   tells its caller.

   The manifest is one record here, read in two steps by LIST and GET. manifest.pml shows
   that the numbered versions behave like that.

   There are W writers, numbered by their epochs. With DUP the writers DUP and DUP+1 have
   the same token. Writers from QUIET on append nothing. K is the window, S the number of
   data slots in an epoch. After WALL refusals, an opener builds a wall of REACH seals.
   With BACKSTOP an opener may once send a seal to any later slot of the epoch that it
   walks in, at any time. With LOSS one object between floor and hint may be lost for ever,
   and an opener may begin at the floor although there is a hint. It is lost while nobody
   opens: of a loss just before its own seal an opener cannot know. The slot takes the seals
   that are sent to it after that. With NO_FOLD there is no compactor.

check: small  two writers, window 2   | -DW=2 -DK=2 -DS=2
check: small  hint and wall           | -DW=2 -DK=1 -DS=1 -DHINT -DWALL=1
check: small  one token for two       | -DW=2 -DK=1 -DS=1 -DDUP=1
check: small  a seal far ahead        | -DW=2 -DK=1 -DS=1 -DBACKSTOP
check: small  a seal far ahead, one token for two | -DW=2 -DK=1 -DS=1 -DDUP=1 -DBACKSTOP
check: small  a seal far ahead, reader | -DW=1 -DK=1 -DS=2 -DHINT -DREADER -DBACKSTOP
check: full   three openers           | -DW=3 -DK=1 -DS=1 -DQUIET=2
check: small  a lost object           | -DW=2 -DK=1 -DS=1 -DHINT -DLOSS
check: full   a lost object, a seal far ahead | -DW=2 -DK=1 -DS=2 -DHINT -DLOSS -DBACKSTOP -DQUIET=2 -DNO_FOLD
check: small  reader                  | -DW=1 -DK=1 -DS=2 -DHINT -DREADER
check: full   hint and wall           | -DW=2 -DK=1 -DS=2 -DHINT -DWALL=1
check: full   a seal far ahead, hint and wall | -DW=2 -DK=1 -DS=1 -DHINT -DWALL=1 -DBACKSTOP
check: full   a seal far ahead        | -DW=2 -DK=1 -DS=2 -DBACKSTOP
check: long   three openers, a seal far ahead | -DW=3 -DK=1 -DS=1 -DQUIET=2 -DBACKSTOP
check: full   two writers, window 2, hint | -DW=2 -DK=2 -DS=2 -DHINT
check: full   two writers, reader         | -DW=2 -DK=1 -DS=1 -DREADER
check: long   reader                  | -DW=2 -DK=1 -DS=1 -DHINT -DREADER
check: long   three writers           | -DW=3 -DK=1 -DS=1
mutant: open-refresh     | -DW=2 -DK=1 -DS=2 -DNO_OPEN_REFRESH
mutant: open-folded      | -DW=2 -DK=1 -DS=1 -DNO_OPEN_FOLDED
mutant: open-folded (the floor, not what was walked) | -DW=2 -DK=1 -DS=2 -DWALL=1 -DFOLDED_BY_WALKING
mutant: open-hint and open-role (either is enough)   | -DW=2 -DK=1 -DS=1 -DHINT -DNO_OPEN_HINT -DNO_OPEN_ROLE
mutant: open-followed    | -DW=3 -DK=1 -DS=1 -DQUIET=2 -DNO_OPEN_FOLLOWED
mutant: open-junk-seal   | -DW=3 -DK=1 -DS=1 -DQUIET=2 -DNO_OPEN_JUNK_SEAL
mutant: open-damage      | -DW=3 -DK=1 -DS=1 -DQUIET=3 -DNO_OPEN_DAMAGE
mutant: open-missing     | -DW=2 -DK=1 -DS=1 -DHINT -DLOSS -DNO_OPEN_MISSING
mutant: backstop-acked   | -DW=2 -DK=1 -DS=2 -DHINT -DLOSS -DBACKSTOP -DQUIET=2 -DNO_FOLD -DNO_BACKSTOP_ACKED
mutant: open-own         | -DW=2 -DK=1 -DS=2 -DWALL=1 -DNO_OPEN_OWN
mutant: open-look        | -DW=2 -DK=1 -DS=2 -DWALL=1 -DNO_OPEN_LOOK
mutant: nobody moves on past an unknown key | -DW=3 -DK=1 -DS=1 -DQUIET=2 -DMOVE_ON
mutant: keep-seals       | -DW=2 -DK=1 -DS=1 -DNO_KEEP_SEALS
mutant: newest by LIST (not counted upward) | -DW=2 -DK=1 -DS=2 -DCOUNT_UPWARD
mutant: contiguous       | -DW=2 -DK=2 -DS=2 -DNO_CONTIGUOUS
mutant: append-refresh   | -DW=2 -DK=1 -DS=1 -DNO_APPEND_REFRESH
mutant: append-junk-seal | -DW=2 -DK=1 -DS=2 -DNO_APPEND_JUNK_SEAL
mutant: append-ended     | -DW=2 -DK=1 -DS=1 -DNO_APPEND_ENDED
mutant: append-forgotten | -DW=2 -DK=1 -DS=1 -DNO_APPEND_FORGOTTEN
mutant: void             | -DW=2 -DK=2 -DS=2 -DNO_VOID
mutant: lower-slots      | -DW=2 -DK=2 -DS=2 -DWALL=1 -DNO_LOWER_SLOTS
mutant: resend (what is absent is not refused) | -DW=2 -DK=1 -DS=1 -DUNKNOWN_IS_REFUSED
mutant: own-nonce        | -DW=2 -DK=1 -DS=1 -DNO_OWN_NONCE
mutant: hint-acked       | -DW=2 -DK=2 -DS=2 -DHINT -DHINT_SENT
mutant: read-junk-seal   | -DW=2 -DK=1 -DS=1 -DREADER -DNO_READ_JUNK_SEAL
mutant: read-absent      | -DW=1 -DK=1 -DS=2 -DREADER -DNO_READ_ABSENT
mutant: read-missing (looked at twice) | -DW=1 -DK=1 -DS=2 -DHINT -DREADER -DNO_READ_TWICE
*/
#ifndef W
#define W 2
#endif
#ifndef K
#define K 2
#endif
#ifndef S
#define S 2
#endif
#ifndef REACH
#define REACH 2
#endif
#ifdef DUP
#define EP(id) ((id) - ((id) > DUP))
#else
#define EP(id) (id)
#endif

/* A position is a number, in the order of the chain. Slots 1..S of an epoch are for data
   or a seal, slot S+1 for the seal of a full epoch. */
#define T (S + 1)
#define N ((W + 1) * T)
#define POS(e, s) ((e) * T + (s) - 1)
#define EPOCH(p) ((p) / T)
#define SEQ(p) ((p) % T + 1)
#define NONE 255

/* An object is data or a seal. Its number says which, and is its nonce: the writer of the
   data, or SEAL plus the opener. */
#define SEAL 16
#define DATA(v) ((v) > 0 && (v) < SEAL)
#define WHO(v) ((v) - SEAL)
byte first[N];		/* the first object in each slot: the history */
byte data_sent[N];	/* the writer that has sent data */
byte seal_sent[N];	/* bits of the openers that have sent a seal */

/* The newest manifest. */
byte floor, floor_off, hint, hint_off, role;
byte seal_of[W + 1];	/* position of an epoch's seal; meaningful only below the floor */
byte opened_by[W + 2];	/* nonce of the seal that opened the epoch; likewise */

byte begin_off[W + 1];	/* the first offset of an epoch, as its writer computed it */
byte opened[W + 1];
byte acked;		/* number of acknowledged records */

#ifdef LOSS
byte lost = NONE;	/* the slot whose object is lost */
byte opening;		/* bits of the writers that are opening */
#define LOST(p) ((p) == lost)
#define OPENED opening = opening & ~BIT
#define KEEP(p) assert(!LOST(p) || (p) < floor)	/* a seal would end the epoch before what was acknowledged */
#else
#define LOST(p) false
#define OPENED skip
#define KEEP(p) skip
#endif

hidden byte y, y_off, y_end;
hidden byte found;

/* follow walks the history up to position p, or to the tail. */
inline follow(p) {
	y = 0; y_off = 0;
	do
	:: y == p -> found = true; break
	:: y != p && (y > p || first[y] == 0) -> found = false; break
	:: else ->
		if
		:: DATA(first[y]) -> y++; y_off++
		:: else ->
			assert(EP(WHO(first[y])) > EPOCH(y));
			y = POS(EP(WHO(first[y])), 1)
		fi
	od
}

/* The caller is told that its record is in the history, for ever. */
inline committed(p, id) {
	d_step { follow(p); assert(found && first[p] == id) }
}

/* The caller is told that its record never will be in the history: the chain does not lead
   to its slot, or the slot is sealed. */
inline not_committed(p) {
	d_step { follow(p); assert(!found && y > p || first[p] >= SEAL) }
}

/* The caller is told that it is fenced: another writer has this epoch or a later one. */
inline replaced(id) {
	d_step {
		y = 0; found = false;
		do
		:: first[y] >= SEAL ->
			if
			:: EP(WHO(first[y])) >= EP(id) && WHO(first[y]) != id -> found = true; break
			:: else -> y = POS(EP(WHO(first[y])), 1)
			fi
		:: DATA(first[y]) -> y++
		:: else -> break
		od;
		assert(found)
	}
}

/* keep-seals */
#ifndef NO_KEEP_SEALS
#define PRUNABLE(p) (EPOCH(p) == EPOCH(floor) || (p) != seal_of[EPOCH(p)])
#else
#define PRUNABLE(p) true
#endif

/* An object below the floor may have been deleted at any time. Any request that was ever
   sent to its slot may have landed since. So each read may find something else. An empty
   slot at or after the floor may be filled by the time of a read. */
#define HOLE(p) ((p) < floor && PRUNABLE(p))
#define FREE(p) ((p) >= floor && first[p] == 0 || HOLE(p))
inline get(p, v) {
	if
	:: LOST(p) -> v = 0
	:: LOST(p) && (seal_sent[p] & 2) -> v = SEAL + 1
	:: LOST(p) && (seal_sent[p] & 4) -> v = SEAL + 2
	:: LOST(p) && (seal_sent[p] & 8) -> v = SEAL + 3
	:: !FREE(p) && !LOST(p) -> v = first[p]
	:: FREE(p) -> v = 0
	:: FREE(p) && data_sent[p] -> v = data_sent[p]
	:: FREE(p) && (seal_sent[p] & 2) -> v = SEAL + 1
	:: FREE(p) && (seal_sent[p] & 4) -> v = SEAL + 2
	:: FREE(p) && (seal_sent[p] & 8) -> v = SEAL + 3
	fi;
	if :: p >= floor && !LOST(p) -> first[p] = v :: else fi
}

/* A create: it is applied and v is 0, or v is the object that refused it. */
inline create(p, x, v) {
	get(p, v);
	if
	:: v == 0 && p >= floor -> first[p] = x
	:: else
	fi
}

/* Read the newest manifest: LIST names it, GET returns it. If it was pruned in between,
   list again. */
inline newest() {
	do
#ifdef COUNT_UPWARD
	/* The number after the remembered one is absent, because it was pruned. */
	:: known && mf != floor -> break
#endif
	:: d_step { mf = floor; mf_off = floor_off; mh = hint; mh_off = hint_off; mr = role; known = true };
		if
		:: break
		:: atomic { mf != floor || mh != hint || mr != role -> skip }
		fi
	od
}

#ifndef COUNT_UPWARD
#define FORGET mf = 0; mf_off = 0; mh = 0; mh_off = 0; mr = 0; known = false
#else
#define FORGET skip
#endif

#define MY EP(id)
#if defined(LOSS) && !defined(NO_BACKSTOP_ACKED)
#define PASSED(p) ((p) >= least)	/* backstop-acked */
#else
#define PASSED(p) true
#endif
#define FIRST(p) (followed == NONE -> (p) : followed)
#define BIT (1 << id)

proctype Writer(byte id) {
	byte p, off, v, i, sealed, refused, followed;
	byte mf, mf_off, mh, mh_off, mr;
	bool known;
#ifdef WALL
	byte early = NONE, early_f, early_r;	/* a manifest that was read after the wall's seal at early was sent, and before the others were */
#endif
	byte lo = 1, end = S + 1;	/* first slot that is not acknowledged; first that is lost */
	bool stop, applied[K];
#ifdef LOSS
	byte least;	/* the manifest says that everything before it is acknowledged */
#endif
#ifdef BACKSTOP
	bool ahead;
#endif
open:
	followed = NONE; refused = 0;
#ifdef WALL
	early = NONE; early_f = 0; early_r = 0;
#endif
#ifdef LOSS
	opening = opening | BIT;
#endif
	newest();
#ifndef NO_OPEN_ROLE
	/* open-role */
	if :: mr >= MY -> goto fenced :: else fi;
#endif
#ifndef NO_OPEN_FOLDED
	/* open-folded */
	if
	:: mf == POS(MY, 1) && opened_by[MY] == id ->
		off = mf_off;
		goto begin
	:: else
	fi;
#endif
	if :: mh > mf -> p = mh; off = mh_off :: else -> p = mf; off = mf_off fi;
#ifdef LOSS
	/* open-hint-fits: after damage the walk begins again at the floor */
	least = p;
	if :: p = mf; off = mf_off :: true fi;
#endif
#ifndef NO_OPEN_HINT
	/* open-hint */
	if :: EPOCH(p) >= MY -> goto fenced :: else fi;
#else
	if :: EPOCH(mf) >= MY -> goto fenced :: else fi;
#endif
walk:
#ifdef BACKSTOP
	if
	:: !ahead && SEQ(p) < T && PASSED(p) ->
		/* open-backstop: no process waits for this seal to land. */
		atomic {
			ahead = true; i = 1;
			do :: SEQ(p) + i < T -> i++ :: break od;
			seal_sent[p + i] = seal_sent[p + i] | BIT;
			i = 0
		}
	:: true
	fi;
#endif
	atomic {
		FORGET;
		get(p, v);
		if
		:: DATA(v) && begin_off[EPOCH(p)] + SEQ(p) - 1 == off -> p++; off++; goto walk
		:: v >= SEAL && EP(WHO(v)) < MY ->
			followed = FIRST(p); p = POS(EP(WHO(v)), 1); goto walk
		:: else
		fi
	}
	if
	:: DATA(v) ->
#ifndef NO_OPEN_DAMAGE
		/* open-damage */
		newest();
		if :: mr >= MY -> goto fenced :: mf > FIRST(p) -> goto open :: else fi;
#endif
		assert(false)	/* no object is damaged, so this must not be reached */
#ifndef NO_OPEN_OWN
	:: v == SEAL + id -> goto refresh	/* open-own */
	:: v >= SEAL && v != SEAL + id && EP(WHO(v)) >= MY ->
#else
	:: v >= SEAL && EP(WHO(v)) >= MY ->
#endif
#ifndef NO_OPEN_JUNK_SEAL
		/* open-junk-seal */
		newest();
		if :: mr >= MY -> goto fenced :: mf > FIRST(p) -> goto open :: else fi;
#endif
		goto fenced
	:: v == 0 -> skip
	fi;
#ifndef NO_OPEN_FOLLOWED
	/* open-followed */
	if
	:: followed != NONE ->
		newest();
		if :: mr >= MY -> goto fenced :: mf > followed -> goto open :: else fi
	:: else
	fi;
#endif
#if defined(LOSS) && !defined(NO_OPEN_MISSING)
	/* open-missing */
	if
	:: p < least ->
		newest();
		if :: mr >= MY -> goto fenced :: mf > FIRST(p) -> goto open :: else -> goto done fi
	:: else
	fi;
#endif
#ifdef WALL
	if
	:: refused >= WALL && SEQ(p) + REACH - 1 <= T ->
		/* open-wall: send the last seal first. Continue when no slot of the wall is empty.
		   The manifest may be read as soon as one seal is there. */
		i = REACH;
		do
		:: i > 0 ->
			atomic {
				i--;
				seal_sent[p + i] = seal_sent[p + i] | BIT;
				create(p + i, SEAL + id, v)
			}
			if
			:: v == 0 || v == SEAL + id ->
				newest();
				skip;
				d_step { early = p + i; early_f = mf; early_r = mr; FORGET }
			:: true
			fi
		:: else -> break
		od;
		goto walk
	:: else
	fi;
#endif
	atomic {
		FORGET;
		KEEP(p);
		seal_sent[p] = seal_sent[p] | BIT
	}
settle:
	if
	:: atomic { create(p, SEAL + id, v); if :: v == 0 -> goto refresh :: else fi }
#ifdef MOVE_ON
	:: goto walk
#else
	:: atomic { get(p, v); if :: v == 0 -> goto settle :: else fi }	/* no answer: read, and send the same again */
#endif
	fi;
	if
	:: v == SEAL + id -> goto refresh
	:: else ->
#ifdef WALL
		if :: refused < WALL -> refused++ :: else fi;
#endif
		goto walk
	fi;
refresh: skip;
	d_step { sealed = p; p = 0; v = 0; followed = 0; refused = 0; FORGET };
#ifndef NO_OPEN_REFRESH
	/* open-refresh */
#ifdef WALL
	if
#ifndef NO_OPEN_LOOK
	:: early == sealed ->	/* open-look */
#else
	:: early != NONE ->
#endif
		mf = early_f; mr = early_r
	:: else -> newest()
	fi;
	early = NONE; early_f = 0; early_r = 0;
#else
	newest();
#endif
#ifdef FOLDED_BY_WALKING
	if :: mf == POS(MY, 1) && opened_by[MY] == id -> goto begin :: else fi;
#endif
	if :: mr >= MY -> goto fenced :: mf > sealed -> goto open :: else fi;
#endif
begin:	skip;
	d_step {
		follow(POS(MY, 1));
		assert(found && y_off == off && !opened[MY]);
		opened[MY] = id; begin_off[MY] = off; OPENED;
		p = 0; v = 0; sealed = 0; followed = 0; refused = 0;
		FORGET
	}
#ifdef QUIET
	if :: id >= QUIET -> goto done :: else fi;
#endif
	do
	:: !stop || data_sent[POS(MY, lo)] ->
		/* Choose a slot of the window. */
		atomic {
		i = 0;
		do :: i < K - 1 && lo + i + 1 < end -> i++ :: break od;
		p = POS(MY, lo + i);
		if
		:: lo + i < end && !applied[i] && (!stop || data_sent[p]) -> skip
		:: else -> goto next
		fi;
		assert(data_sent[p] == 0 || data_sent[p] == id);
		data_sent[p] = id;
		if
		:: create(p, id, v);
			if :: v == 0 -> applied[i] = true; goto next :: else fi
		:: skip
		fi;
		get(p, v);	/* refused, or no answer */
		if
		:: v == id ->
#ifndef NO_OWN_NONCE
			applied[i] = true;
#else
			not_committed(p);
#endif
			goto next
		:: v == 0 ->
#ifdef UNKNOWN_IS_REFUSED
			not_committed(p);
#endif
			goto next
		:: DATA(v) && v != id -> assert(false)
		:: v >= SEAL -> skip
		fi
		} /* atomic */

#ifndef NO_APPEND_REFRESH
		newest();	/* append-refresh */
#endif
		atomic {
		if
		:: mf <= p ->
			not_committed(p); end = SEQ(p); stop = true;
#ifdef NO_LOWER_SLOTS
			do :: i > 0 -> i--; committed(POS(MY, lo + i), id) :: else -> break od
#endif
		:: mf > p && EPOCH(mf) == MY ->	/* append-junk-seal */
#ifndef NO_APPEND_JUNK_SEAL
			committed(p, id); applied[i] = true
#else
			not_committed(p)
#endif
		:: mf > p && EPOCH(mf) > MY ->	/* append-ended, void */
#ifndef NO_APPEND_ENDED
			not_committed(seal_of[MY]);
			applied[i] = true; stop = true;
#ifndef NO_VOID
			end = SEQ(seal_of[MY])
#endif
#else
			not_committed(p)
#endif
		:: mf > p && EPOCH(mf) > MY ->	/* append-forgotten */
#ifndef NO_APPEND_FORGOTTEN
			stop = true
#else
			not_committed(p)
#endif
		fi
		}
next:		skip;
		d_step { p = 0; v = 0; i = 0; FORGET }
#ifdef NO_CONTIGUOUS
	:: applied[K - 1] && lo + K - 1 < end -> committed(POS(MY, lo + K - 1), id)
#endif
	:: applied[0] && lo < end ->
		committed(POS(MY, lo), id);
		d_step {
			if :: acked < begin_off[MY] + lo -> acked = begin_off[MY] + lo :: else fi;
			lo++;
			i = 0; do :: i < K - 1 -> applied[i] = applied[i + 1]; i++ :: else -> break od;
			applied[K - 1] = false; i = 0
		}
#ifdef HINT
	:: atomic { role <= MY && !stop ->
			role = MY;
#ifdef HINT_SENT
			if
			:: lo + K - 1 <= S && data_sent[POS(MY, lo + K - 1)] -> hint = POS(MY, lo + K - 1) + 1; hint_off = begin_off[MY] + lo + K - 1
			:: else
			fi;
#endif
			if
			:: POS(MY, lo) > floor && POS(MY, lo) > hint -> hint = POS(MY, lo); hint_off = begin_off[MY] + lo - 1
			:: else
			fi
		}
#endif
	:: lo == S + 1 -> break
	:: break
	od;
	goto done;
fenced:
	replaced(id);
done:	skip;
	OPENED;
	d_step { p = 0; off = 0; v = 0; sealed = 0; refused = 0; followed = 0; lo = 0; end = 0; stop = 0; applied[0] = 0; FORGET }
}

proctype Compactor() {
	byte v;
	do
	:: atomic {
			first[floor] || data_sent[floor] || seal_sent[floor] ->
			get(floor, v);
			if
			:: v == 0
			:: DATA(v) -> floor++; floor_off++
			:: v >= SEAL ->
				seal_of[EPOCH(floor)] = floor;
				opened_by[EP(WHO(v))] = WHO(v);
				floor = POS(EP(WHO(v)), 1)
			fi;
			if :: hint <= floor -> hint = 0; hint_off = 0 :: else fi;
			v = 0
		}
	od
}

#ifdef LOSS
proctype Rot() {
	byte p;
	atomic {
		do :: p < N - 1 -> p++ :: break od;
		opening == 0 && p >= floor && p < hint && first[p] && !seal_sent[p] -> lost = p;
		p = 0
	}
}
#endif

#ifdef READER
/* A reader may follow several seals, and hold back what it finds, until one reading of the
   manifest confirms the first of them. bad: something held back is not in the history. */
proctype Reader() {
	byte p, off, v, before, doubtful = NONE;
	byte followed = NONE, delivered;	/* the first seal that is not confirmed, and the offset there */
	bool bad;
	byte mf, mf_off, mh, mh_off, mr;
	bool known;
	before = acked;
	newest();
resume:	/* records below the floor are in segments, at the same offsets */
	if :: followed != NONE -> off = delivered; followed = NONE; delivered = 0; bad = false :: else fi;
	if :: off < mf_off -> off = mf_off :: else fi;
	p = mf;
	if :: mh > mf && mh_off <= off -> p = mh :: else fi;
	if :: p == mf -> off = mf_off :: else -> off = mh_off fi;
walk:
#ifndef NO_READ_JUNK_SEAL
	/* read-junk-seal */
	if
	:: followed != NONE ->
		newest();
		if :: mf > followed -> goto resume :: else fi;
		d_step { assert(!bad); followed = NONE; delivered = 0 }
	:: true
	fi;
#else
	skip;
	d_step { assert(!bad); followed = NONE; delivered = 0 };
#endif
	atomic { FORGET; get(p, v) }
	if
	:: DATA(v) && begin_off[EPOCH(p)] + SEQ(p) - 1 == off ->
		d_step {
			follow(p);
			bad = bad || !(found && first[p] == v && y_off == off);
			assert(!bad || followed != NONE)
		};
		p++; off++; goto walk
	:: DATA(v) && begin_off[EPOCH(p)] + SEQ(p) - 1 != off ->
		newest();
		if :: mf > FIRST(p) -> goto resume :: else -> assert(false) fi
	:: v >= SEAL ->
		d_step {
			if :: followed == NONE -> followed = p; delivered = off :: else fi;
			follow(p);
			bad = bad || !(found && first[p] == v)
		};
		p = POS(EP(WHO(v)), 1); goto walk
	:: v == 0 ->
#ifndef NO_READ_ABSENT
		newest();
		if :: mf > FIRST(p) -> goto resume :: else fi;
#endif
		d_step { assert(!bad); followed = NONE; delivered = 0 };
		if
		:: mh > p && doubtful != p ->
#ifdef NO_READ_TWICE
			assert(false);
#endif
			doubtful = p; goto walk
		:: mh > p && doubtful == p -> assert(false)
		:: else
		fi
	fi;
	assert(off >= before)	/* the end of a complete read */
}
#endif

init {
	atomic {
		byte w = 1;
		do :: w <= W -> run Writer(w); w++ :: else -> break od;
#ifndef NO_FOLD
		run Compactor();
#endif
#ifdef LOSS
		run Rot();
#endif
#ifdef READER
		run Reader()
#endif
	}
}
