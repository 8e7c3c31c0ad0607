/* Progress: with a live candidate and a fair store, some candidate leads in the end, and
   its appends are acknowledged.

   Candidate 2 may stop at any step, for ever; candidate 1 does not. The store answers in
   the end, but it loses up to LOST requests or replies. A lock whose holder has stopped
   is expired in the end. A live holder may be taken for dead DOUBTS times. The leader
   appends S records and renews its lock. Each process that can continue does so in the
   end (weak fairness).

check: small  two candidates | -DS=1
check: full   two records, more lost | -DS=2 -DLOST=2 -DDOUBTS=2 -DLAST=8
mutant: depose-first (a lock that has lapsed is expired by somebody else)  | -DS=1 -DNO_DEPOSE
mutant: a lock that is gone makes a candidate list again            | -DS=1 -DNO_LIST_AGAIN
mutant: resend (or nobody hears of it any more)                     | -DS=1 -DNO_RESEND
*/
#ifndef LOST
#define LOST 1
#define DOUBTS 1
#define LAST 6
#endif

byte newest;		/* the highest lock */
byte holder[LAST + 1];
bool expired[LAST + 1], gone[LAST + 1];
byte leads;		/* the candidate that holds the highest lock and knows it */
byte acked[3];
byte lost, doubts;
bool stopped;

ltl somebody_leads_and_appends { <>[] (leads != 0 && acked[leads] == S) }

#define ALIVE(c) ((c) == 1 || !stopped)

proctype Candidate(byte me) {
	byte n, slot;
	bool there;
	{ skip;
list:
	atomic { n = newest };
watch:
	if
	:: n == 0
	:: n > 0 && gone[n] ->
#ifndef NO_LIST_AGAIN
		goto list
#else
		goto watch
#endif
	:: n > 0 && !gone[n] && expired[n]
	:: atomic { n > 0 && !gone[n] && !expired[n] && (!ALIVE(holder[n]) || holder[n] == me) ->
#ifndef NO_DEPOSE
			expired[n] = true; if :: leads == holder[n] -> leads = 0 :: else fi
#else
			goto watch
#endif
		}
	:: atomic { n > 0 && !gone[n] && !expired[n] && ALIVE(holder[n]) && holder[n] != me && doubts < DOUBTS ->
#ifndef NO_DEPOSE
			doubts++; expired[n] = true; if :: leads == holder[n] -> leads = 0 :: else fi
#else
			doubts++; goto watch
#endif
		}
	:: n > 0 && n < newest -> goto list
	fi;
	assert(n < LAST);
	/* Create the next lock: applied, refused, or applied without an answer. */
	if
	:: atomic { newest == n -> newest = n + 1; holder[newest] = me; n++ }
	:: newest > n -> goto list
	fi;
	/* Confirm the lock, unless another candidate has been faster. */
	if
	:: atomic { newest == n && !expired[n] -> leads = me; acked[me] = 0 }
	:: newest > n || expired[n] -> goto list
	fi;
	slot = 0; there = false;
	/* Append S records one after the other. Then renew until deposed. */
	do
	:: slot < S && !expired[n] ->
		/* Send a request. The request or its reply may be lost. */
#ifdef NO_RESEND
		atomic {
			if
			:: there = true
			:: lost < LOST -> lost++
			fi
		}
		do
		:: there || expired[n] -> break
		:: else	/* read again */
		od;
#else
		do
		:: !there && !expired[n] ->
			atomic {
				if
				:: there = true
				:: lost < LOST -> lost++
				fi
			}
		:: there || expired[n] -> break
		od;
#endif
		atomic { if :: leads == me && there -> slot++; acked[me] = slot :: else fi; there = false }
	:: expired[n] -> break
	od;
	goto list
	} unless { stopped && me == 2 }
}

proctype Pruner() {
	byte i;
	do
	:: atomic { newest > 1 && !gone[newest - 1] -> i = newest - 1; gone[i] = true; i = 0 }
	od
}

proctype Stopper() {
	if
	:: atomic { stopped = true; if :: leads == 2 -> leads = 0 :: else fi }
	:: skip
	fi
}

init { atomic { run Candidate(1); run Candidate(2); run Pruner(); run Stopper() } }
