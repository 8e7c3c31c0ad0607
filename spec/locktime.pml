/* The session of locks, with clocks: who believes to hold a lock, and who takes it.

   lock.pml shows without clocks that tokens rise, and that nobody renews a session whose lock was taken. This model
   shows that nobody even believes to hold a lock that somebody else has taken, as long as clocks run. A
   process has one session, and two locks in it. Its session begins with the request for the first lock. It has no
   object before its first heartbeat. Whoever finds a lock of a session that is expired takes it at once.

   Time: each clock advances by 1 or 2 with each tick, so the fastest is twice as fast as the slowest. Any number
   of events happen between two ticks. The session lasts L, by its holder's clock. Others wait W = 2 L by theirs:
   the holder stops a tenth of the validity before its end, which covers clocks that differ by 5 %.

   Somebody may delete the object by hand. Then no create lands twice, since that would be two faults at once.

check: small  three ticks                    | -DL=3
check: small  five ticks                     | -DL=5
check: small  deleted by hand                | -DL=3 -DHAND
mutant: lock-session                         | -DL=3 -DOWN_DEADLINE
mutant: lock-sent                            | -DL=3 -DFROM_ANSWER
mutant: lock-final                           | -DL=3 -DNO_FINAL
mutant: lock-lapse                           | -DL=3 -DNO_WATCH_AFTER
mutant: lock-rate                            | -DL=3 -DNO_RATE
mutant: lock-depose (any version)            | -DL=3 -DNO_SWAP
mutant: lock-placeholder                     | -DL=3 -DHAND -DNO_PLACE
*/
#ifdef NO_RATE
/* lock-rate: a holder stops before its validity ends. Without this: its clock is slow, and the clock of the one that
   waits is fast. */
#define W L
#else
#define W (2 * L)
#endif

/* The object. */
#define GONE 0
#define PLACE 1
#define KNOWN 2		/* the version that the holder knows, or that its heartbeat under way has made */
#define OTHER 3		/* an earlier version of the holder's own, by a late copy */
#define EXPIRED 4
byte object;

byte left;		/* what is left until the deadline, by the holder's clock */
bool begun, over;	/* the first lock was asked for; the session is over, for good */
bool one, two;		/* the bucket has an entry of it, or will have one at any time */
bool held, also;	/* the holder was told so, in time */
#ifdef OWN_DEADLINE
byte left2;		/* of the second lock */
#endif
byte beat;		/* a heartbeat: 1 sent, 2 landed; 0 none, or answered */
byte beat_left;		/* until the deadline that it makes */
bool born;		/* a heartbeat has landed */

bool same;		/* somebody watches the version that is there */
byte wait_left;
#ifdef NO_WATCH_AFTER
bool asked; byte asked_left;
#endif
bool dead;		/* somebody has found the session dead, and takes its locks */

#ifdef OWN_DEADLINE
/* lock-session: all locks have the deadline of the session. Without this: a lock is taken a moment before the session
   is expired for another one, and has a deadline of its own. */
#define BELIEVES (held && left > 0 || also && left2 > 0)
#else
#define BELIEVES (!over && (held || also) && left > 0)
#endif
#define CHECK assert(!(dead && BELIEVES))

proctype Holder() {
	do
	:: d_step { !begun -> begun = true; one = true; left = L }
	/* lock-final: what comes after the deadline is worth nothing. */
#ifdef NO_FINAL
	:: d_step { begun && one && !held -> held = true; left = (left > 0 -> left : 1); CHECK }
#else
	:: d_step { begun && one && !held && left > 0 -> held = true; CHECK }
#endif
	:: d_step { held && left > 0 && !two -> two = true;
#ifdef OWN_DEADLINE
		left2 = L
#endif
		}
#ifdef OWN_DEADLINE
	:: d_step { two && !also && left2 > 0 && !over -> also = true; CHECK }
#else
	:: d_step { two && !also && left > 0 -> also = true; CHECK }
#endif
	:: d_step { begun && left > 0 && beat == 0 && !over -> beat = 1; beat_left = L }
	/* The heartbeat is refused: the session was expired, or its object is gone. */
	:: d_step { beat == 1 && (object == EXPIRED || born && object != KNOWN) -> over = true; beat = 0; beat_left = 0 }
#ifdef NO_FINAL
	:: d_step { beat == 2 ->
#else
	:: d_step { beat == 2 && left > 0 ->
#endif
		/* lock-sent: a deadline counts from before the request. */
#ifdef FROM_ANSWER
		left = L;
#else
		left = beat_left;
#endif
		beat = 0; beat_left = 0; CHECK }
	od
}

proctype Network() {
	do
	:: d_step { beat == 1 && (!born && (object == GONE || object == PLACE) || object == KNOWN && born) ->
		beat = 2; born = true; object = KNOWN; same = false }
#ifdef HAND
	:: d_step { object != GONE -> object = GONE; same = false }
#else
	/* Sweeping an expired session. */
	:: d_step { object == EXPIRED -> object = GONE; same = false }
	/* A copy of the create. */
	:: d_step { object == GONE && born -> object = OTHER; same = false }
#endif
	od
}

#define WATCHED (object == PLACE || object == KNOWN || object == OTHER)

proctype Others() {
	do
#ifdef NO_PLACE
	/* lock-placeholder. Without this: nothing is found once, and taken for an end. */
	:: d_step { one && object == GONE && wait_left == 0 && !same && born -> dead = true; CHECK }
#endif
	:: d_step { one && object == GONE -> object = PLACE; same = true; wait_left = W }
#ifdef NO_WATCH_AFTER
	/* lock-lapse: they count from after the answer that first showed the version. */
	:: d_step { one && WATCHED && !same && !asked -> asked = true; asked_left = W }
	:: d_step { one && WATCHED && asked -> same = true; wait_left = asked_left; asked = false; asked_left = 0 }
#else
	:: d_step { one && WATCHED && !same -> same = true; wait_left = W }
#endif
	/* lock-depose: only the version that has lapsed is expired. */
#ifdef NO_SWAP
	:: d_step { one && WATCHED && wait_left == 0 -> object = EXPIRED; same = false; dead = true; CHECK }
#else
	:: d_step { one && WATCHED && same && wait_left == 0 -> object = EXPIRED; same = false; dead = true; CHECK }
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
			DOWN(left, a); DOWN(beat_left, a);
#ifdef OWN_DEADLINE
			DOWN(left2, a);
#endif
			DOWN(wait_left, b);
#ifdef NO_WATCH_AFTER
			DOWN(asked_left, b);
#endif
#ifndef NO_FINAL
			if :: left == 0 && begun -> over = true :: else fi;
#endif
			a = 0; b = 0 } }
	od
}

init { atomic { run Holder(); run Network(); run Others(); run Clock() } }
