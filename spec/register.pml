/* The register: one object that is overwritten only by the epoch that owns it, or a later one.

   Each process opens the register with its token: it reads the object and claims it with a
   write of its own, which keeps the value. Then it sets values. Every write swaps the version
   that its sender knows. A write may land at any later time, or never, and its answer may be
   lost. After a lost answer a process may give up and try its next write.

   Process p has token TOKEN(p). A version is the number of the write that made it: W writes for
   each process, of which the first TRIES are claims.

check: small  three processes, the last two with one token | -DP=3 -DTRIES=1 -DSETS=2 -DTWINS
check: small  three processes, three tokens | -DP=3 -DTRIES=2 -DSETS=1
check: full   three processes, the last two with one token, two tries | -DP=3 -DTRIES=2 -DSETS=2 -DTWINS
mutant: register-epoch                              | -DP=2 -DTRIES=2 -DSETS=1 -DNO_EPOCH
mutant: register-claim                              | -DP=2 -DTRIES=2 -DSETS=2 -DNO_CLAIM
mutant: register-own (any state)                    | -DP=2 -DTRIES=2 -DSETS=2 -DNO_OWN
mutant: register-own (another holder of the token)  | -DP=3 -DTRIES=2 -DSETS=2 -DTWINS -DWEAK_OWN
*/
#define W (TRIES + SETS)
#define N (P * W + 1)
#ifdef TWINS
#define TOKEN(p) ((p) < P - 1 -> (p) + 1 : P - 1)	/* the last two have the same */
#else
#define TOKEN(p) ((p) + 1)
#endif
#define OWNER(v) (((v) - 1) / W)
#define EPOCH(v) ((v) == 0 -> 0 : TOKEN(OWNER(v)))

byte now;		/* the version of the object; 0: there is none */
byte old[N];		/* the version that a write swaps */
byte value[N];		/* the value that it leaves: the number of the set that wrote it */
bool sent[N], landed[N], claims[N];
byte top;		/* the highest epoch whose open has returned */
byte holder = 255;	/* the process whose claim landed last */

/* A write lands. The rest is what must hold. */
inline land(w) {
		assert(EPOCH(w) >= EPOCH(now));		/* no epoch overwrites a later one */
		assert(EPOCH(w) >= top);		/* nor changes what a later one was told */
		if
		:: claims[w] ->
			assert(value[w] == value[now]);	/* a claim keeps the value */
			holder = OWNER(w)
		:: else -> assert(OWNER(w) == holder)	/* and it ends the holder before it, also with the same token */
		fi;
		now = w; landed[w] = true
}

active proctype Network() {
	byte w;
	do
	:: atomic {
			w = 1;
			do :: w < N - 1 -> w++ :: break od;
			if :: sent[w] && !landed[w] && now == old[w] -> land(w) :: else fi;
			w = 0
		}
	od
}

proctype Process(byte me) {
	byte n, w, known, tries, sets;
again:
	if :: tries == TRIES -> goto out :: else fi;
	n = now;	/* GET */
#ifndef NO_EPOCH
	if :: EPOCH(n) > TOKEN(me) -> goto out :: else fi;
#endif
#ifdef NO_CLAIM
	known = n;
#else
	atomic {
		w = me * W + 1 + tries; tries++;
		old[w] = n; value[w] = value[n]; claims[w] = true; sent[w] = true
	};
	if
	:: landed[w] -> known = w
	:: !landed[w] && now != old[w] -> goto again
	:: goto out	/* it gives up */
	fi;
#endif
	d_step { top = (EPOCH(known) > top -> EPOCH(known) : top);
#ifdef NO_CLAIM
		top = (TOKEN(me) > top -> TOKEN(me) : top); holder = me;
#endif
	};
	do
	:: sets == SETS -> break
	:: else ->
		atomic {
			w = me * W + 1 + TRIES + sets; sets++;
			old[w] = known; value[w] = w; sent[w] = true
		};
		if
		:: landed[w] -> known = w
		:: !landed[w] && now != old[w] ->	/* refused: is it a write of its own? */
			n = now;
			if
#ifdef NO_OWN
			:: true -> known = n
#else
#ifdef WEAK_OWN
			:: EPOCH(n) == TOKEN(me) -> known = n
#else
			:: n != 0 && OWNER(n) == me -> known = n
#endif
			:: else -> break	/* fenced */
#endif
			fi
		:: skip	/* the answer is lost; the next write swaps the same version */
		fi
	od;
out:	n = 0; w = 0; known = 0; tries = 0; sets = 0
}

init {
	byte p;
	atomic {
		do
		:: p < P -> run Process(p); p++
		:: else -> break
		od
	}
}
