/* A group goes on: a partition is owned again in the end, while somebody is there.

   Member 1 joins at some time, and stays. Member 2 may stop at any step, for ever; it may
   leave; its work may never return when it is told to stop; its listings may fail for
   ever, while its heartbeats do not. One partition. Members create an assignment when
   the owner is dead or leaving, or when there is none; up to MOVES times they also
   move it for no reason. With OLD_NEWS that may be to somebody who is leaving or dead.

   Acknowledgements are objects. A pruner deletes them, and the objects of expired
   members; it may judge by an assignment that was the newest long ago. Each process
   that can go on goes on in the end (weak fairness).

check: small  one move | -DMOVES=1 -DLAST=6
check: full   one move, perhaps to somebody dead | -DMOVES=1 -DLAST=7 -DOLD_NEWS
check: full   two moves | -DMOVES=2 -DLAST=8
mutant: absent-dead                                        | -DMOVES=1 -DLAST=6 -DNO_ABSENT
mutant: ack-unheld                                         | -DMOVES=1 -DLAST=6 -DNO_ACK_UNHELD
mutant: ack-kept                                           | -DMOVES=1 -DLAST=6 -DNO_ACK_KEPT
mutant: ack-newer                                          | -DMOVES=1 -DLAST=6 -DNO_ACK_OLDER
mutant: hung-ends                                          | -DMOVES=1 -DLAST=6 -DNO_HUNG_ENDS
mutant: blind-ends                                         | -DMOVES=1 -DLAST=6 -DNO_BLIND_ENDS
mutant: look-anyway                                        | -DMOVES=1 -DLAST=6 -DNO_LOOK_ANYWAY
mutant: next-organises                                     | -DMOVES=1 -DLAST=6 -DNO_NEXT_ORGANISES
*/
#define M 2
#define NOBODY 0

/* The members. */
#define LIVE 1
#define LAPSED 2	/* its deadline has passed */
#define EXPIRED 3
#define DELETED 4
byte state[M + 1];	/* 0: not there yet */
bool leaving[M + 1];
bool hung[M + 1];	/* its work does not return */
bool blind[M + 1];	/* it cannot list */
byte known[M + 1];	/* the newest assignment that it has seen */
byte work[M + 1];	/* by which assignment it works; 0: it does not */
byte last[M + 1];	/* what it has acknowledged last */

/* The assignments. Each moves the partition, so its number is also the tenure. */
byte newest;
byte owner[LAST + 1];
byte pend[(LAST + 1) * (M + 1)];
bool ack[(LAST + 1) * (M + 1)];		/* the object is there */
#define PEND(n, m) pend[(n) * (M + 1) + (m)]
#define ACK(n, m) ack[(n) * (M + 1) + (m)]
byte moves;

ltl owned_again { <>[] (owner[newest] != NOBODY && state[owner[newest]] == LIVE && work[owner[newest]] == newest) }

/* absent-dead: after a validity of GETs that found no object, a member is dead. Without
   this: a slow pruner, which has read an assignment that does not name A, deletes the object
   of A, who is expired. The newest names A as pending, and everybody waits for ever. */
#ifdef NO_ABSENT
#define DEAD(m) (state[m] == EXPIRED)
#else
#define DEAD(m) (state[m] == EXPIRED || state[m] == DELETED)
#endif

/* ack-unheld: a member acknowledges each entry that names it, also of a partition that it
   never had. Without this: 2 gives the partition to B, and 3 takes it away. B sees 3 only, and
   has nothing to give up; the owner by 3 waits for B for ever. */
#ifdef NO_ACK_UNHELD
bool had[M + 1];
#define HAD(m) had[m]
#define HAS(m) had[m] = true
#else
#define HAD(m) true
#define HAS(m) skip
#endif

/* ack-kept: an acknowledgement of n is kept while the newest assignment has an entry of n
   or less of its sender. Without this: A acknowledges 2, and this is pruned before the new
   owner has looked. A does not acknowledge 2 again, and the new owner waits for ever. */
#ifdef NO_ACK_KEPT
#define WANTED(n, k, m) false
#else
#define WANTED(n, k, m) (PEND(n, m) != 0 && PEND(n, m) <= k)
#endif

/* ack-newer: a pruner deletes no acknowledgement of a higher number than the assignment by
   which it judges. Without this: a slow pruner has read 1, which names nobody as pending, and
   deletes A's acknowledgement of 2, for which the owner by 2 waits. */
#ifdef NO_ACK_OLDER
#define JUDGES(n, k) true
#else
#define JUDGES(n, k) (k <= n)
#endif

/* look-anyway: members list from time to time, whatever the hint says. Without this: the
   hint of the newest assignment is lost, and no other follows: its owner never hears of it. */
#ifdef NO_LOOK_ANYWAY
bool hint[M + 1];
#define HINTED(m) hint[m]
#define HINT(m) if :: hint[m] = true :: skip fi
#define HEARD(m) hint[m] = false
#else
#define HINTED(m) true
#define HINT(m) skip
#define HEARD(m) skip
#endif

/* next-organises: when what is needed is not done for a validity, the next member does it.
   Without this: only the first organises. It is dead, or hangs, and nothing is done. */
#ifdef NO_NEXT_ORGANISES
#define TURN(m) (m == 2)
#else
#define TURN(m) true
#endif

inline lapse(m) {
	state[m] = LAPSED; work[m] = 0; known[m] = 0; last[m] = 0; hung[m] = false; blind[m] = false
}

inline cleared(n, m, ok) {
	ok = PEND(n, m) == 0 || DEAD(m); i = PEND(n, m);
	do :: !ok && i <= newest -> ok = ACK(i, m); i++ :: else -> break od;
	i = 0
}

proctype Look(byte m) {
	do
	:: atomic { state[m] == 0 -> state[m] = LIVE }
	:: atomic { state[m] == LIVE && !blind[m] && known[m] < newest && HINTED(m) -> HEARD(m); known[m] = newest }
#ifndef NO_BLIND_ENDS
	/* blind-ends: a member that has not been able to list for a validity ends its session.
	   Without this: its heartbeats go on, so nobody expires it; it never sees that it is
	   pending, and the new owner waits for ever. */
	:: atomic { state[m] == LIVE && blind[m] -> lapse(m) }
#endif
	od
}

#define DONE(m) (PEND(known[m], m) == 0 || last[m] == known[m])

proctype Work(byte m) {
	byte i, x;
	bool ok, all;
	do
	:: atomic { state[m] == LIVE && work[m] != 0 && work[m] != known[m] && !hung[m] -> work[m] = 0 }
#ifndef NO_HUNG_ENDS
	/* hung-ends: a member whose work does not return in time ends its session. Without
	   this: its heartbeats go on, it never acknowledges, and the new owner waits for ever. */
	:: atomic { state[m] == LIVE && work[m] != 0 && work[m] != known[m] && hung[m] -> lapse(m) }
#endif
	:: atomic { state[m] == LIVE && work[m] == 0 && !DONE(m) && HAD(m) -> last[m] = known[m]; ACK(known[m], m) = true }
	:: atomic { state[m] == LIVE && work[m] == 0 && owner[known[m]] == m && DONE(m) ->
		all = true; x = 1;
		do :: x <= M -> cleared(known[m], x, ok); all = all && ok; x++ :: else -> break od;
		if :: all -> work[m] = known[m]; HAS(m) :: else fi;
		x = 0; ok = false; all = false }
	/* It has left: somebody else, or nobody, is the owner. */
	:: atomic { state[m] == LIVE && leaving[m] && work[m] == 0 && owner[known[m]] != m && DONE(m) -> state[m] = EXPIRED }
	od
}

#define CAN(m) (state[m] == LIVE && !leaving[m])
#ifdef OLD_NEWS
#define MAY_BE(m) (state[m] != 0)
#else
#define MAY_BE(m) CAN(m)
#endif

proctype Organise(byte m) {
	byte who, x, i, o;
	bool ok;
	do
	:: atomic { state[m] == LIVE ->
		x = 1; do :: x <= M && state[x] != LAPSED -> x++ :: else -> break od;
		if :: x <= M -> state[x] = EXPIRED :: else fi;
		x = 0 };
		atomic { state[m] == LIVE && !blind[m] && TURN(m) ->
		o = owner[newest];
		who = 1; do :: who < M -> who++ :: break od;
		if
		:: who != o && MAY_BE(who) && moves < MOVES -> moves++
		:: true ->
			if
			:: o != NOBODY && !leaving[o] && !DEAD(o) -> who = o
			:: else ->
				if
				:: CAN(who)
				:: else -> who = 1; do :: who <= M && !CAN(who) -> who++ :: else -> break od;
					if :: who > M -> who = NOBODY :: else fi
				fi
			fi
		fi;
		if
		:: who != o ->
			assert(newest < LAST);
			newest++; owner[newest] = who; x = 1;
			do
			:: x <= M ->
				cleared(newest - 1, x, ok);
				if
				:: PEND(newest, x) = PEND(newest - 1, x)
				:: ok
				fi;
				if :: x == o && !DEAD(x) -> PEND(newest, x) = newest :: else fi;
				HINT(x);
				x++
			:: else -> break
			od
		:: else
		fi;
		who = 0; x = 0; o = 0; ok = false }
	od
}

/* The pruner judges by an assignment that it has read, perhaps long ago: by any. It may
   delete what that one does not name, one object at a time. */
proctype Prune() {
	byte n, m, k;
	do
	:: atomic { newest > 0 ->
		m = 1; do :: m < M -> m++ :: break od;
		k = 0; do :: k < newest -> k++ :: break od;
		d_step {
		if
		:: k > 0 && ACK(k, m) ->
			do :: n <= newest && !(JUDGES(n, k) && !WANTED(n, k, m)) -> n++ :: else -> break od;
			if :: n <= newest -> ACK(k, m) = false :: else fi
		:: k == 0 && state[m] == EXPIRED ->
			do :: n <= newest && (PEND(n, m) != 0 || owner[n] == m) -> n++ :: else -> break od;
			if :: n <= newest -> state[m] = DELETED :: else fi
		:: else
		fi;
		n = 0; m = 0; k = 0 } }
	:: break
	od
}

proctype Fate() {
	if
	:: atomic { state[2] == LIVE -> leaving[2] = true }
	:: hung[2] = true
	:: blind[2] = true
	:: true
	fi;
	if
	:: atomic { state[2] == LIVE -> lapse(2) }
	:: true
	fi
}

init {
	atomic {
		run Look(1); run Work(1); run Organise(1);
		run Look(2); run Work(2); run Organise(2);
		run Prune(); run Fate()
	}
}
