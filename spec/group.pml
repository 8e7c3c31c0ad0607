/* Groups: M members share P partitions. Numbered assignments say who owns which
   partition, and who may still work on it. A partition changes hands by a handshake:
   the old owner stops and acknowledges, the new owner waits for that.

   A member is one session of a worker, with a name of its own. Its lease may end at any
   time. Others find it dead only after its own deadline, and from then on for ever:
   member.pml shows that they may rely on both.

   Any member may create the next assignment at any time, and may give any partition to
   any member, or to nobody. So policy (shares, stickiness, who organises) is not part
   of this model, and what it shows needs none.

   Facts about a member never turn false: it is dead; it has acknowledged up to some
   number. A fact may have been read long ago, or not be seen at all. So a late copy of
   an acknowledgement does no harm, and a pruned one only makes others wait.
   grouplive.pml shows that they do not wait for ever.

   Pruning: an assignment that is not the newest may be gone, and a late create may fill
   the hole. A listing shows a number that was the newest at some moment since the
   listing began (manifest.pml shows why), so junk in a hole misleads nobody who lists. Only
   mutants that read junk have it here. Assignments on which no live member can act are
   forgotten.

   V assignments; an owner opens a partition up to K times under one ownership. With
   RAISE there is one partition first, and more are added. Each mutant leaves out one
   rule; beside the rule stands what happens then.

check: small  three members              | -DM=3 -DP=1 -DV=4 -DK=1
check: small  five assignments           | -DM=2 -DP=1 -DV=5
check: small  a partition is added       | -DM=2 -DP=2 -DV=3 -DK=1 -DRAISE
check: full   three members that open twice | -DM=3 -DP=1 -DV=4
check: full   two partitions that are opened twice | -DM=2 -DP=2 -DV=3 -DRAISE
check: full   six assignments            | -DM=2 -DP=1 -DV=6
check: full   three members, five assignments | -DM=3 -DP=1 -DV=5 -DK=1
check: long   seven assignments          | -DM=2 -DP=1 -DV=7
check: long   a partition is added, four assignments | -DM=2 -DP=2 -DV=4 -DK=1 -DRAISE
mutant: handshake       | -DM=2 -DP=1 -DV=3 -DNO_HANDSHAKE
mutant: pending-kept    | -DM=3 -DP=1 -DV=3 -DNO_PENDING_KEPT
mutant: pending-raised  | -DM=2 -DP=1 -DV=4 -DNO_PENDING_RAISED
mutant: pending-raised (acknowledgements without numbers) | -DM=2 -DP=1 -DV=4 -DNO_ACK_NUMBER
mutant: tenure-new      | -DM=2 -DP=1 -DV=3 -DNO_TENURE_NEW
mutant: tenure-token    | -DM=2 -DP=1 -DV=4 -DNO_TENURE_TOKEN
mutant: token-count     | -DM=2 -DP=1 -DV=3 -DNO_COUNT
mutant: stop-first      | -DM=2 -DP=1 -DV=3 -DNO_STOP_FIRST
mutant: newest-kept     | -DM=2 -DP=1 -DV=4 -DNO_NEWEST_KEPT
mutant: listed-version  | -DM=2 -DP=1 -DV=4 -DNO_LISTED_VERSION
mutant: created-listed  | -DM=2 -DP=1 -DV=4 -DNO_CREATED_LISTED
mutant: create-absent   | -DM=2 -DP=1 -DV=4 -DNO_CREATE_ABSENT
mutant: partitions-kept | -DM=2 -DP=2 -DV=3 -DK=1 -DRAISE -DNO_PARTITIONS_KEPT
mutant: deadline-first  | -DM=2 -DP=1 -DV=3 -DNO_DEADLINE_FIRST
mutant: new-name        | -DM=2 -DP=1 -DV=4 -DNO_NEW_NAME
mutant: expire-last     | -DM=2 -DP=1 -DV=3 -DNO_EXPIRE_LAST
*/
#ifndef K
#define K 2
#endif
#define NOBODY M

/* The store. Assignments are rows; the last row is for junk. */
#define JUNK (V + 1)
byte newest;
byte parts[V + 2];		/* how many partitions it names */
byte owner[(V + 2) * P];
byte tenure[(V + 2) * P];	/* names the ownership; it rises with each, and is at most the assignment's number */
byte pend[(V + 2) * P * M];	/* pending: the number that a member must acknowledge first, or 0 */
#define OWNER(row, p) owner[(row) * P + (p)]
#define TENURE(row, p) tenure[(row) * P + (p)]
#define PEND(row, p, m) pend[((row) * P + (p)) * M + (m)]
byte total;			/* group.json: how many partitions there are */
bool dead[M];			/* others may find that it is expired, or gone for long enough */
byte acked[M * P];		/* the highest number that a member has acknowledged */
#define ACKED(m, p) acked[(m) * P + (p)]

/* The members. */
bool joined[M];
bool lease[M];			/* by its own clock */
byte known[M];			/* the newest assignment that it has seen */
byte held[M * P];		/* the ownership under which it works, by its tenure; 0: none */
byte opened[M * P];		/* how often it has opened the partition under it */
bool work[M * P];		/* work runs, or was told to stop and has not returned */
#define HELD(m, p) held[(m) * P + (p)]
#define OPENED(m, p) opened[(m) * P + (p)]
#define WORK(m, p) work[(m) * P + (p)]
byte top[P];			/* the greatest token of any opening */

#ifdef NO_CREATE_ABSENT
#define KEEP_OLD
#endif
#if defined(NO_CREATED_LISTED) || defined(NO_LISTED_VERSION)
byte junk;			/* its number; 0: there is none yet */
#define NUMBER(row) ((row) == JUNK -> junk : (row))
#define KEEP_OLD
#else
#define NUMBER(row) (row)
#endif

/* newest-kept: a member that has seen an assignment never acts on an older one. Without
   this: A stops by assignment 2, and acknowledges it; B starts. An old listing then
   shows 1 to A, by which the partition is A's; A starts beside B. */
#ifdef NO_NEWEST_KEPT
#define KEEP_OLD
#define LOWEST(m) 1
#else
#define LOWEST(m) (NUMBER(known[m]) + 1)
#endif

/* tenure-token: work goes on only under the ownership under which it began. Without
   this: 1 and 3 give the partition to A, 2 to B. A sees 1 and 3, and goes on with the
   token of 1. A's work fails, and before A opens again it acknowledges 3. B, who has
   seen 2 only, takes that for A's answer to 2, and starts. A opens again beside B. */
#ifdef NO_TENURE_TOKEN
#define MINE(m, p) (OWNER(known[m], p) == m)
#else
#define MINE(m, p) (OWNER(known[m], p) == m && TENURE(known[m], p) == HELD(m, p))
#endif

/* An owner that opens again under one ownership counts its openings. Without the count:
   its second opening has the token of the first, and the log takes the two for one. */
#ifdef NO_COUNT
#define TOKEN(m, p) (HELD(m, p) * K)
#else
#define TOKEN(m, p) (HELD(m, p) * K + OPENED(m, p))
#endif

/* An acknowledgement has the number of the assignment that its sender has seen. Without
   the number: A acknowledges 2, gets the partition back by 3, works, and loses it by 4.
   B takes the old acknowledgement for the answer to 4, and starts while A works. */
#ifdef NO_ACK_NUMBER
#define ANSWERED(row, p, m) (ACKED(m, p) != 0)
#else
#define ANSWERED(row, p, m) (ACKED(m, p) >= PEND(row, p, m))
#endif

/* cleared: nobody needs to wait for member m any more. */
#define CLEARED(row, p, m) (PEND(row, p, m) == 0 || dead[m] || ANSWERED(row, p, m))

/* stop-first: a member acknowledges a partition only when its work there has returned.
   Without this: A acknowledges 2 as soon as it sees it; B starts while A's last
   requests are still being made. */
#ifdef NO_STOP_FIRST
#define STOPPED(m, p) true
#else
#define STOPPED(m, p) (!WORK(m, p))
#endif

/* handshake: a new owner starts when every pending entry is cleared. Without this: B
   starts as soon as it sees 2; A has not seen it yet, and works. */
#ifdef NO_HANDSHAKE
#define MUST_WAIT(row, p, m) false
#else
#define MUST_WAIT(row, p, m) (!CLEARED(row, p, m))
#endif

/* expire-last: a member that leaves expires itself only when all its work has returned.
   Without this: A expires itself while a partition still drains. Nobody waits for a
   dead member, so B starts beside A's work. */
#ifdef NO_EXPIRE_LAST
#define MAY_START(m) (lease[m] && !dead[m])
#else
#define MAY_START(m) lease[m]
#endif

/* pending-kept: an entry stays until it is cleared. Without this: A works; 2 gives the
   partition to B, who never starts; 3 gives it to C, and names only B as pending. B has
   nothing to stop, and acknowledges. C starts while A, which has not seen 2, works. */
#ifdef NO_PENDING_KEPT
#define STAYS(row, p, m) false
#else
#define STAYS(row, p, m) (PEND(row, p, m) != 0)
#endif

/* pending-raised: when an owner loses its partition, its entry gets the new number, also
   if it has an entry already. Without this: A's entry of 2 is not cleared yet when 3 gives
   the partition back to A. A acknowledges 3, and starts. 4 gives it to B, and leaves A's
   entry at 2. A's acknowledgement of 3 clears that, and B starts while A works. */
#ifdef NO_PENDING_RAISED
#define RAISED(row, p, m, n) (STAYS(row, p, m) -> PEND(row, p, m) : n)
#else
#define RAISED(row, p, m, n) n
#endif

/* give_up follows each look, and each return of work. */
inline give_up(m, p) {
	if
	:: !WORK(m, p) && HELD(m, p) != 0 && !MINE(m, p) -> HELD(m, p) = 0; OPENED(m, p) = 0
	:: else
	fi
}

/* forget clears assignments on which no live member can act. An entry of a dead
   member makes nobody wait: it is as if it were not there. */
inline forget() {
	n = newest; x = 0;
#ifdef KEEP_OLD
	n = 0;
#else
	do :: x < M -> if :: lease[x] && known[x] < n -> n = known[x] :: else fi; x++ :: else -> break od;
#endif
	row = 0;
	do
	:: row <= newest ->
		if :: row < n -> parts[row] = 0 :: else fi;
		p = 0;
		do
		:: p < P ->
			if :: row < n -> OWNER(row, p) = 0; TENURE(row, p) = 0 :: else fi;
			x = 0;
			do :: x < M -> if :: row < n || dead[x] -> PEND(row, p, x) = 0 :: else fi; x++ :: else -> break od;
			p++
		:: else -> break
		od;
		row++
	:: else -> break
	od;
	n = 0; p = 0; x = 0; row = 0
}

/* look: m reads the assignment that a listing has shown as the newest. */
inline look(m, to) {
	known[m] = to;
	p = 0;
	do :: p < P -> give_up(m, p); p++ :: else -> break od;
	forget()
}

/* join: a session that begins now lists later, so it sees nothing older than this. */
inline join(m) {
	joined[m] = true; lease[m] = true; known[m] = newest
}

/* end: the deadline. All work of m ends at once, and others may find it dead. */
inline end(m) {
	lease[m] = false; dead[m] = true; known[m] = 0;
	p = 0;
	do :: p < P -> HELD(m, p) = 0; OPENED(m, p) = 0; WORK(m, p) = false; ACKED(m, p) = 0; p++ :: else -> break od;
	forget()
}

inline open(m, p) {
	/* One at a time, by their own belief. */
	x = 0;
	do :: x < M -> assert(x == m || !WORK(x, p)); x++ :: else -> break od;
	/* Tokens rise. */
	assert(TOKEN(m, p) > top[p]);
	top[p] = TOKEN(m, p);
	OPENED(m, p) = OPENED(m, p) + 1;
	WORK(m, p) = true
}

#ifdef NO_TENURE_NEW
#define LEAST_TENURE(row, p) TENURE(row, p)
#else
#define LEAST_TENURE(row, p) (TENURE(row, p) + 1)
#endif

/* organise writes assignment n into row `to`. It follows from the one in row base. What the
   organiser has read of members, and of group.json, may be old. */
inline organise(base, to, n) {
	parts[to] = 1;
	do :: parts[to] < total -> parts[to]++ :: break od;
#ifndef NO_PARTITIONS_KEPT
	/* partitions-kept: an assignment has no fewer partitions than the one before. Without
	   this: 2 adds a partition, on which A works. An organiser that has read the old
	   number of partitions creates 3 without it, and so without its pending entries. The
	   next adds it again in 4, as if it were new; B starts while A, which has not seen 3, works. */
	if :: parts[to] < parts[base] -> parts[to] = parts[base] :: else fi;
#endif
	p = 0;
	do
	:: p < P ->
		who = 0; do :: who <= M -> who++ :: break od;
		if
		:: p >= parts[to] -> OWNER(to, p) = NOBODY; TENURE(to, p) = 0; moved = false
		:: p < parts[to] && (who > M || who < M && !joined[who] || who == NOBODY && OWNER(base, p) == NOBODY) ->
			OWNER(to, p) = OWNER(base, p); TENURE(to, p) = TENURE(base, p); moved = false
		/* Also to the same owner anew, when its count is used up. */
		:: else ->
			OWNER(to, p) = who; TENURE(to, p) = (who == NOBODY -> 0 : n); moved = true;
			/* tenure-new: the tenure of a partition that moves is above its tenure before, and
			   at most n. It need not be n: an assignment that moves few partitions takes a
			   tenure that others have. Nobody's partition has no tenure that the organiser
			   could compare with, so it gets n. Without this: B owns the partition after A,
			   with A's tenure. B's first token is A's. */
			if
			:: who != NOBODY && OWNER(base, p) != NOBODY ->
				do :: TENURE(to, p) > LEAST_TENURE(base, p) -> TENURE(to, p)-- :: break od
			:: else
			fi
		fi;
		x = 0;
		do
		:: x < M ->
			if
			:: p >= parts[to] -> PEND(to, p, x) = 0
			:: p < parts[to] && moved && OWNER(base, p) == x -> PEND(to, p, x) = RAISED(base, p, x, n)
			:: p < parts[to] && moved && OWNER(base, p) == x && dead[x] -> PEND(to, p, x) = 0
			:: p < parts[to] && !(moved && OWNER(base, p) == x) -> PEND(to, p, x) = (STAYS(base, p, x) -> PEND(base, p, x) : 0)
			:: p < parts[to] && !(moved && OWNER(base, p) == x) && CLEARED(base, p, x) -> PEND(to, p, x) = 0
			fi;
			x++
		:: else -> break
		od;
		p++
	:: else -> break
	od;
	p = 0; x = 0; who = 0; moved = false
}

inline any_partition() {
	p = 0; do :: p + 1 < P -> p++ :: break od
}

proctype Member(byte m) {
	byte n, p, x, row, who;
	bool moved, ok;
	do
	/* Names differ in nothing, so members join in order. */
	:: d_step { !joined[m] && (m == 0 || joined[m - 1]) -> join(m) }
#ifdef NO_NEW_NAME
	/* new-name: a worker that was expired joins as another member. Without this: A is
	   expired, and an organiser sees it. A comes back under its name, finds itself the
	   owner by 1, and starts. The organiser creates 2, which gives the partition to B with
	   nobody pending; B starts while A works. */
	:: d_step { joined[m] && !lease[m] -> join(m) }
#endif
	:: d_step { lease[m] -> end(m) }
#ifdef NO_DEADLINE_FIRST
	/* deadline-first: a member is expired only after its own deadline. Without this:
	   watchers expire A, whose heartbeats are late. Its partition is given to B with nobody
	   pending; B starts while A, which knows nothing of it, works. */
	:: d_step { lease[m] -> dead[m] = true }
#endif
	/* Leaving. */
#ifdef NO_EXPIRE_LAST
	:: d_step { lease[m] -> dead[m] = true }
#else
	:: d_step { lease[m] -> p = 0; ok = true;
		do :: p < P -> ok = ok && !WORK(m, p); p++ :: else -> break od;
		if :: ok -> end(m) :: else -> p = 0 fi; ok = false }
#endif
	/* A listing that began long ago shows what was the newest then. */
	:: atomic { lease[m] && newest >= LOWEST(m) ->
		n = newest; do :: n > LOWEST(m) -> n-- :: break od;
		d_step { look(m, n) } }
	/* Work returns: it was told to stop, or it has failed. */
	:: atomic { lease[m] -> any_partition();
		d_step {
			if :: WORK(m, p) -> WORK(m, p) = false; give_up(m, p) :: else fi;
			p = 0 } }
	/* Acknowledge each entry that names m, also of a partition that it never had: it may
	   have been the owner by an assignment that it has not seen. */
	:: atomic { lease[m] -> any_partition();
		d_step {
			if :: PEND(known[m], p, m) != 0 && STOPPED(m, p) -> ACKED(m, p) = NUMBER(known[m]) :: else fi;
			p = 0 } }
	/* Start. */
	:: atomic { MAY_START(m) -> any_partition();
		d_step {
			if
			/* Again, after a failure. Nobody is asked. */
			:: !WORK(m, p) && HELD(m, p) != 0 && MINE(m, p) && OPENED(m, p) < K -> open(m, p)
			:: !WORK(m, p) && HELD(m, p) == 0 && OWNER(known[m], p) == m ->
				ok = true; x = 0;
				do :: x < M -> ok = ok && (x == m || !MUST_WAIT(known[m], p, x)); x++ :: else -> break od;
				if :: ok -> HELD(m, p) = TENURE(known[m], p); open(m, p) :: else fi
			:: else
			fi;
			p = 0; x = 0; ok = false } }
	/* create-absent: assignments are created, never overwritten, so each follows from the
	   one before. Without this: two organisers read 1. One creates 2, which gives the
	   partition to A; A starts. The other overwrites it with a 2 that gives the partition
	   to B, with nobody pending; B starts. */
	:: atomic { lease[m] && newest < V -> organise(newest, newest + 1, newest + 1); newest++; d_step { forget() } }
#ifdef NO_CREATE_ABSENT
	:: atomic { lease[m] && newest > 0 -> organise(newest - 1, newest, newest) }
#endif
	:: d_step { lease[m] && total < P -> total++ }
#if defined(NO_CREATED_LISTED) || defined(NO_LISTED_VERSION)
	/* A slow organiser creates a number that was pruned, and is told that it did. */
	:: atomic { lease[m] && junk == 0 && known[m] + 1 < newest ->
		junk = known[m] + 1; organise(known[m], JUNK, junk)
#ifdef NO_CREATED_LISTED
		/* created-listed: nobody acts on what it has created, only on a listing that
		   begins after the answer. Without this: Z reads 1 and sleeps. 2 gives the partition
		   to A, 3 to B; 2 is pruned. Z creates another 2, in the hole, with itself as the owner,
		   and starts beside B: whoever is pending there has acknowledged long ago. */
		; d_step { look(m, JUNK) }
#endif
	}
#endif
#ifdef NO_LISTED_VERSION
	/* listed-version: a GET must return the version that the listing showed. Without
	   this: C lists 2 as the newest, and sleeps. 3 gives the partition to B, and 2 is
	   pruned. Z, which has read 1, creates another 2 in the hole, with C as the owner. C
	   reads that one, and starts beside B. */
	:: d_step { lease[m] && junk != 0 && known[m] < junk -> look(m, JUNK) }
#endif
	od
}

init {
	atomic {
		byte i;
#ifdef RAISE
		total = 1;
#else
		total = P;
#endif
		parts[0] = total;
		do :: i < P -> OWNER(0, i) = NOBODY; i++ :: else -> break od;
		i = 0;
		do :: i < M -> run Member(i); i++ :: else -> break od;
		i = 0
	}
}
