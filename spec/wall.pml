/* The wall of seals against a leader that saturates its pipeline and wins every
   race. The opener seals the first empty slot that it has seen; after WALL refusals
   it seals 2 B slots at once, and then twice as many each time.

   Nothing helps an opener that is slower than anybody can be. From its look at the
   chain to the answers to its requests the leader gets at most SPEED slots
   acknowledged; with that the opener must be done before the leader is at slot MAX.

   L is the leader's window, B the opener's.

check: small  equal windows          | -DL=2 -DB=2 -DSPEED=2 -DMAX=14
check: small  the leader's is larger | -DL=4 -DB=1 -DSPEED=3 -DMAX=30
check: full   much larger            | -DL=6 -DB=1 -DSPEED=4 -DMAX=42
mutant: open-wall  | -DL=2 -DB=2 -DSPEED=2 -DMAX=14 -DNO_WALL
mutant: open-reach | -DL=4 -DB=1 -DSPEED=3 -DMAX=30 -DNO_REACH
mutant: window     | -DL=2 -DB=2 -DSPEED=2 -DMAX=14 -DNO_WINDOW
mutant: contiguous | -DL=2 -DB=2 -DSPEED=2 -DMAX=14 -DNO_CONTIGUOUS
*/
#define WALL 3
#define DATA 1
#define SEALED 2

byte slot[MAX + 2];
byte acked = 1;		/* the first slot that is not acknowledged */
byte furthest;		/* the last one that is */
byte began = 1;		/* acked when the opener's attempt began */
bool done;

#ifndef NO_WINDOW
#define WINDOW L
#else
#define WINDOW MAX
#endif

proctype Leader() {
	byte i;
	do
	:: atomic {	/* one of the window lands */
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
			assert(acked < MAX)	/* outrun */
		}
	:: slot[acked] == SEALED || done -> break
	od
}

proctype Opener() {
	byte p = 1, i, reach = 2 * B, refused;
	do
	:: atomic {
			began = acked;
			do :: slot[p] == DATA -> p++ :: else -> break od
		}
		if :: slot[p] == SEALED -> break :: else fi;
#ifndef NO_WALL
		if
		:: refused >= WALL ->
			i = (p + reach > MAX + 1 -> MAX + 1 - p : reach);
			do
			:: i > 0 -> atomic { i--; if :: slot[p + i] == 0 -> slot[p + i] = SEALED :: else fi }
			:: i == 0 -> break
			od;
#ifndef NO_REACH
			reach = 2 * reach
#endif
		:: else ->
#endif
			atomic {
				if
				:: slot[p] == 0 -> slot[p] = SEALED
				:: else -> if :: refused < WALL -> refused++ :: else fi
				fi
			}
#ifndef NO_WALL
		fi
#endif
	od;
	skip;
	/* The first seal is behind all that was acknowledged, and nothing more will be. */
	d_step { done = true; assert(furthest < p && acked <= p) }
}

init { atomic { run Leader(); run Opener() } }
