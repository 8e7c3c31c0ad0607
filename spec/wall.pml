/* The wall of seals, against a leader that saturates its pipeline and wins every race.

   The opener sends a seal to the first empty slot that it has read. If that is refused, it
   builds the wall: a row of seals in every slot after it, of which B are in flight. One more
   seal goes far ahead of the row, twice as far each time the row has come there. When one
   seal is applied, the row goes on up to that slot.

   Requests in flight take effect in any order, and all are answered before more are sent.
   So the model's wall is the slowest possible one. In the code an answer makes room for the
   next request at once, and a far seal that is refused is sent farther at once.

   An opener of unbounded slowness could not win. So between the sending of a request and
   its answer, the leader gets at most SPEED slots acknowledged. The opener must then be
   done before the leader reaches slot MAX. The leader may stop at any time.

   L is the leader's window, B the opener's.

check: small  equal windows          | -DL=2 -DB=2 -DSPEED=2 -DMAX=22
check: small  a slow leader          | -DL=2 -DB=1 -DSPEED=1 -DMAX=10
check: small  the leader's is larger | -DL=3 -DB=1 -DSPEED=2 -DMAX=20
check: long   much larger            | -DL=4 -DB=1 -DSPEED=3 -DMAX=30
mutant: open-wall  | -DL=2 -DB=2 -DSPEED=2 -DMAX=22 -DNO_WALL
mutant: open-reach | -DL=3 -DB=1 -DSPEED=2 -DMAX=20 -DNO_REACH
mutant: each slot before the seal is decided | -DL=2 -DB=2 -DSPEED=2 -DMAX=22 -DNO_LOWER
mutant: window     | -DL=2 -DB=1 -DSPEED=1 -DMAX=10 -DNO_WINDOW
mutant: contiguous | -DL=2 -DB=2 -DSPEED=2 -DMAX=22 -DNO_CONTIGUOUS
*/
#define DATA 1
#define SEALED 2

byte slot[MAX + 2];
bool put[MAX + 2];	/* a seal is in flight */
byte acked = 1;		/* the first slot that is not acknowledged */
byte furthest;		/* the last slot that is acknowledged */
byte began = 1;		/* acked when the opener's requests were sent */
bool done;

#ifndef NO_WINDOW
#define WINDOW L
#else
#define WINDOW MAX
#endif

proctype Leader() {
	byte i;
	do
	:: atomic {	/* a request of the window lands */
			acked < began + SPEED ->
			i = 0;
			do :: i < WINDOW - 1 && acked + i < MAX -> i++ :: break od;
			if
			:: slot[acked + i] == 0 -> slot[acked + i] = DATA
			:: slot[acked + i] != 0
			fi;
#ifdef NO_CONTIGUOUS
			if :: slot[acked + i] == DATA && furthest < acked + i -> furthest = acked + i :: else fi;
#endif
			i = 0
		}
	:: atomic { slot[acked] == DATA && acked < began + SPEED ->
			if :: furthest < acked -> furthest = acked :: else fi;
			acked++;
			assert(acked < MAX)	/* the leader has not outrun the opener */
		}
	:: slot[acked] == SEALED || done -> break
	od
}

#define SEND(s) if :: (s) <= MAX -> put[s] = true; flying++ :: else fi

/* Any one of the seals in flight takes effect. */
inline land() {
	atomic {
		i = 1;
		do :: i < MAX -> i++ :: put[i] -> break od;
		put[i] = false; flying--;
		if
		:: slot[i] == 0 -> slot[i] = SEALED; if :: lowest == 0 || i < lowest -> lowest = i :: else fi
		:: slot[i] == DATA -> if :: taken < i -> taken = i :: else fi
		:: slot[i] == SEALED -> if :: lowest == 0 || i < lowest -> lowest = i :: else fi
		fi;
		i = 0
	}
}

proctype Opener() {
	byte p = 1, i, n, flying, next, far, taken, lowest;
	atomic {
		do :: slot[p] == DATA -> p++ :: else -> break od;
		began = acked
	}
	atomic { SEND(p) }
	land();
#ifdef NO_WALL
	do
	:: lowest == 0 ->
		atomic { began = acked; do :: slot[p] == DATA -> p++ :: else -> break od }
		atomic { SEND(p) }
		land()
	:: else -> break
	od;
#else
	next = p + 1;
	far = p + 3 * B;
	do
	:: lowest == 0 ->
		atomic {
			began = acked;
			n = 0;
			do
			:: n < B ->
				SEND(next);
				next++; n++;
				if
				:: next > far ->
#ifndef NO_REACH
					far = p + 2 * (far - p);
					SEND(far)
#else
					skip
#endif
				:: else
				fi
			:: else -> break
			od;
			if :: taken == p -> SEND(far) :: else fi;	/* the first time */
			n = 0
		}
		do :: flying > 0 -> land() :: else -> break od;
		atomic { do :: next <= taken -> next++ :: else -> break od }
	:: else -> break
	od;
#endif
#ifndef NO_LOWER
	atomic {
		began = acked;
		i = p;
		do
		:: i < lowest -> if :: slot[i] != DATA -> SEND(i) :: else fi; i++
		:: else -> break
		od;
		i = 0
	}
	do :: flying > 0 -> land() :: else -> break od;
#endif
	skip;
	/* The walk reaches the first seal. It is after all acknowledged slots, and no more will
	   be acknowledged. */
	d_step {
		done = true;
		do :: p < lowest && slot[p] == DATA -> p++ :: else -> break od;
		assert(p == lowest && slot[p] == SEALED && furthest < p && acked <= p)
	}
}

init { atomic { run Leader(); run Opener() } }
