/* A member of a group: it joins, sends heartbeats, lapses, and is expired and deleted.

   group.pml takes two things for granted. A member that is found dead stays dead, so
   others may remember it. And a dead member does not work: its own deadline has passed,
   and it never goes on under this name. So this model has one name, and one property: a
   member that somebody has found dead does not work, now or later.

   A member is found dead in two ways. Its object says that it is expired; or GETs have
   found no object for a validity.

   Requests: a create that was sent may land at any later time, and again when the
   object was deleted. That its sender had an answer does not help, as a proxy may send it
   twice. So may a swap and a delete. Copies of the create and of all swaps, one after
   the other, may bring back the very version from which the member renews.

   Time: each clock advances by 1 or 2 with each tick, so the fastest is twice as fast as
   the slowest (a ClockRate of 1/3). Any number of events happen between two ticks. A
   member's lease is L long, by its own clock. Others wait W = 2 L by theirs:
   validity (1 + r) / (1 - r).

   With HAND somebody may delete the object by hand, at any time. Then nothing lands
   twice, since that would be two faults at once.

check: small  a validity of three | -DL=3
check: small  a validity of five  | -DL=5
check: small  deleted by hand     | -DL=3 -DHAND
mutant: clean-join                                       | -DL=3 -DNO_CLEAN_JOIN
mutant: final-deadline                                   | -DL=3 -DNO_FINAL_DEADLINE
mutant: deadline-sent (it counts from the sending)       | -DL=3 -DFROM_ANSWER
mutant: deadline-sent (it counts from the first sending) | -DL=3 -DFROM_COPY
mutant: lapse                                            | -DL=3 -DNO_WATCH_AFTER
mutant: lapse-rate                                       | -DL=3 -DNO_RATE
mutant: expire-swap                                      | -DL=3 -DNO_EXPIRE_SWAP
mutant: absent-waits (a listing)                         | -DL=3 -DBY_LISTING
mutant: absent-waits (one GET)                           | -DL=3 -DHAND -DBY_ONE_GET
*/
#ifdef NO_RATE
/* lapse-rate: watchers wait longer than a validity, as clocks may differ in rate. Without
   this: A's clock is slow and B's is fast. After a validity by B's clock B expires A,
   whose own deadline has not come. */
#define W L
#else
#define W (2 * L)
#endif

/* The member's object. */
#define GONE 0		/* not there yet, or deleted */
#define OLD 1		/* live: a version before the one that the member renews from */
#define KNOWN 2		/* live: the version that the member renews from */
#define NEXT 3		/* live: the version that its heartbeat under way has made */
#define EXPIRED 4
byte object;
#define LIVE (object == OLD || object == KNOWN || object == NEXT)

/* The member. */
#define SENT 1		/* its create was sent */
#define LATE 2		/* answered too late; only without clean-join does it go on */
#define JOINED 3
#define ENDED 4
byte member;
bool landed;		/* a create of it has landed */
byte left;		/* what is left until the deadline, by its clock */
bool named;		/* assignments may name it */
byte swap;		/* a heartbeat: 1 sent, 2 landed; 0 none, or answered */
byte swap_left;		/* until the deadline that it makes */
bool swapped;
bool removed;		/* a delete was sent */

/* The others. */
bool watched;		/* somebody has a version of the object, and counts */
bool same;		/* and that is the version that is there */
byte wait_left;
bool missing;		/* somebody has found nothing, and counts */
byte missing_left;
bool dead;		/* somebody has found the member dead */
#ifdef NO_WATCH_AFTER
bool asked; byte asked_left;
#endif
#ifdef BY_LISTING
bool unlisted;
#endif

#define WORKS (member == JOINED && left > 0)
#define CHECK assert(!(dead && WORKS))

#ifdef HAND
#define COPIES false
#else
#define COPIES true
#endif

/* final-deadline: a member whose deadline has passed never goes on under its name,
   whatever answer comes later. Without this: A's heartbeat gets no answer, and A's deadline
   passes. A is expired and deleted. Copies of its create and its swaps land, and then the
   heartbeat itself. A is told that it was applied, and works; others have seen A expired,
   and have given its partitions away. */
#ifdef NO_FINAL_DEADLINE
#define IN_TIME true
#else
#define IN_TIME (left > 0)
#endif

proctype Member() {
	do
	:: d_step { member == 0 -> member = SENT; left = L }
	/* clean-join: the create is the first heartbeat. Its deadline counts from before it was
	   first sent, and an answer that comes later is worth nothing: another name is
	   taken. Without this: A's create lands, and A hears nothing of it. It is expired and
	   deleted; then a copy of the create lands. A is told that it was created, renews it, and
	   works; others have seen A expired, and do not wait for it. To have sent the create
	   once, and to have an answer, is not enough: a proxy may have sent it twice. */
	:: d_step { member == SENT && landed ->
#ifdef NO_CLEAN_JOIN
		member = LATE; left = 0;
#else
		if :: left > 0 -> member = JOINED :: else -> member = ENDED fi;
#endif
		CHECK }
	:: d_step { WORKS && !named -> named = true }
	/* A heartbeat. */
	:: d_step { (WORKS || member == LATE) && swap == 0 -> swap = 1; swap_left = L }
#ifdef FROM_COPY
	/* deadline-sent: the deadline counts from before a heartbeat was first sent. Without
	   this: A's heartbeat is applied, and the answer is lost. A sends it again, much later,
	   and learns that it is there. A counts from then; watchers count from the first. */
	:: d_step { WORKS && swap != 0 -> swap_left = L }
#endif
	:: d_step { (member == JOINED && IN_TIME || member == LATE) && swap == 2 ->
#ifdef FROM_ANSWER
		/* deadline-sent: and not from the answer. Without this: the answer is slow. Watchers
		   see the new version before A hears of it, and expire it before A's deadline. */
		left = L;
#else
		left = swap_left;
#endif
		member = JOINED; swap = 0; swap_left = 0; swapped = true;
		if
		:: object == NEXT -> object = KNOWN
		:: object == KNOWN -> object = OLD
		:: else
		fi;
		CHECK }
#ifndef NO_FINAL_DEADLINE
	:: d_step { member == JOINED && left == 0 -> member = ENDED; swap_left = 0 }
#endif
	od
}

/* What was sent lands. A watcher may have had the version before: then it goes on
   counting. */
proctype Network() {
	do
	:: atomic { member != 0 && object == GONE && (!landed || COPIES) ->
		landed = true; object = (swapped -> OLD : KNOWN);
		if :: same = false :: watched -> same = true fi }
	:: atomic { object == OLD -> object = KNOWN; if :: same = false :: watched -> same = true fi }
	:: d_step { object == KNOWN && swap != 0 -> object = NEXT; swap = 2; same = false }
	:: d_step { object != GONE && removed -> object = GONE; same = false }
#ifdef HAND
	:: d_step { object != GONE -> object = GONE; same = false }
#endif
	od
}

proctype Others() {
	do
#ifdef NO_WATCH_AFTER
	/* lapse: watchers count from after the answer that first showed the version. Without
	   this: they count from when they asked, and A wrote between that and the answer. */
	:: d_step { LIVE && !same && !asked -> asked = true; asked_left = W }
	:: d_step { LIVE && asked -> watched = true; same = true; wait_left = asked_left; asked = false; asked_left = 0 }
#else
	:: d_step { LIVE && !same -> watched = true; same = true; wait_left = W }
#endif
	/* expire-swap: only the version that has lapsed is expired. Without this: A writes again
	   while the request to expire it is under way, and is expired in spite of it. */
#ifdef NO_EXPIRE_SWAP
	:: d_step { LIVE && watched && wait_left == 0 -> object = EXPIRED; same = false; dead = true; CHECK }
#else
	:: d_step { LIVE && same && wait_left == 0 -> object = EXPIRED; same = false; dead = true; CHECK }
#endif
	:: d_step { object == EXPIRED -> removed = true; object = GONE }
	/* absent-waits: a member whose object is gone is dead after a validity of GETs that
	   found nothing. Until then it may work: somebody may have deleted the object by hand. */
	:: d_step { named && object == GONE && !missing -> missing = true; missing_left = W }
	:: d_step { object != GONE && missing -> missing = false; missing_left = 0 }
	:: d_step { object == GONE && missing && missing_left == 0 -> dead = true; CHECK }
#ifdef BY_ONE_GET
	:: d_step { named && object == GONE -> dead = true; CHECK }
#endif
#ifdef BY_LISTING
	/* A listing does not do. Without this: an organiser lists the members; A joins; the
	   organiser reads an assignment that names A, and takes A, who is not in its list, for gone. */
	:: d_step { object == GONE && !named -> unlisted = true }
	:: d_step { named && unlisted -> dead = true; CHECK }
#endif
	od
}

#define DOWN(t, d) t = (t > d -> t - d : 0)

proctype Clock() {
	byte a, b;
	do
	:: atomic {
		if :: a = 1 :: a = 2 fi;
		if :: b = 1 :: b = 2 fi;
		d_step {
			DOWN(left, a); DOWN(swap_left, a);
			DOWN(wait_left, b); DOWN(missing_left, b);
#ifdef NO_WATCH_AFTER
			DOWN(asked_left, b);
#endif
			a = 0; b = 0 } }
	od
}

init { atomic { run Member(); run Network(); run Others(); run Clock() } }
