/* Files against pruning.

   The writers of epochs 1 and 2 upload files, and commit them with entries of the
   log that name them; entries may also remove files. A compactor folds the entries
   into the manifest, raises the mark, deletes what was dropped at or below it, and
   sweeps files that nobody named. It decides on a manifest and a listing that may be
   old by the time it deletes. A file's upload may land late.

   Each of F files belongs to an epoch; X is how many manifests there may be.

check: small  two files  | -DF=2 -DX=6
check: full   three files | -DF=3 -DX=7
mutant: edit-epoch (a file is committed in its own epoch only)       | -DF=2 -DX=6 -DNO_EDIT_EPOCH
mutant: edit-again (what was removed is not added again)             | -DF=2 -DX=6 -DNO_EDIT_AGAIN
mutant: edit-complete (the upload is there before the entry)         | -DF=2 -DX=6 -DNO_EDIT_COMPLETE
mutant: orphan-files (those of a sealed epoch only are swept)        | -DF=2 -DX=6 -DNO_ORPHAN_SEALED
mutant: orphan-files (and only when all of it is folded)             | -DF=2 -DX=6 -DNO_ORPHAN_FOLDED
mutant: dropped-mark (what was dropped stays until the mark is up)   | -DF=2 -DX=6 -DNO_DROPPED_MARK
*/
#define EPOCH(f) (1 + (f) % 2)

byte epoch = 1;		/* the log's tail is in it; lower ones are sealed */
byte entries[F];	/* in the log that name the file: added, removed, added again */
bool sent[F], settled[F];	/* the upload; it was seen to be there */
bool there[F];

byte manifest;		/* the newest's number */
byte folded[F];		/* the entries that it knows */
byte floor = 1;		/* epochs below it are folded */
byte dropped[F];	/* the version that dropped it */
byte mark;

/* Somebody may need it: a reader of the log, or of a version above the mark. */
#define LIVE(n) ((n) % 2 == 1)
#define NEEDED(f) (LIVE(entries[f]) || LIVE(folded[f]) || folded[f] == 2 && dropped[f] > mark)

proctype Writer(byte e) {
	byte f;
	epoch == e;
	do
	:: atomic {
			f = 0; do :: f < F - 1 -> f++ :: break od;
			if
			:: EPOCH(f) == e && !sent[f] && entries[f] == 0 -> sent[f] = true	/* upload */
			:: entries[f] == 0 && sent[f] && epoch == e ->
#ifndef NO_EDIT_EPOCH
				if :: EPOCH(f) == e -> skip :: else -> goto next fi;
#endif
#ifndef NO_EDIT_COMPLETE
				if :: settled[f] -> skip :: else -> goto next fi;
#endif
				/* What the history names is there. */
				entries[f] = 1; assert(there[f])
			:: EPOCH(f) == e && there[f] && sent[f] -> settled[f] = true
			:: entries[f] == 1 && epoch == e -> entries[f] = 2
#ifdef NO_EDIT_AGAIN
			:: entries[f] == 2 && epoch == e && EPOCH(f) == e && there[f] -> entries[f] = 3
#endif
			:: else
			fi;
next:			f = 0
		}
	:: epoch != e -> break
	:: break
	od
}

/* Uploads land late, more than once if need be; a writer seals its predecessor. */
proctype Network() {
	byte f;
	do
	:: atomic { f = 0; do :: f < F - 1 -> f++ :: break od; if :: sent[f] -> there[f] = true :: else fi; f = 0 }
	:: atomic { epoch == 1 -> epoch = 2 }
	od
}

proctype Compactor() {
	byte f, seen_floor, seen_mark;
	bool doomed;
	do
	:: atomic { manifest < X ->	/* fold an entry */
			f = 0; do :: f < F - 1 -> f++ :: break od;
			if
			:: folded[f] < entries[f] ->
				manifest++; folded[f]++;
				if :: folded[f] == 2 -> dropped[f] = manifest :: else fi
			:: else
			fi;
			f = 0
		}
	:: atomic { floor < epoch ->	/* the seal follows when all before it is folded */
			f = 0;
			do
			:: f < F && folded[f] == entries[f] -> f++
			:: f < F && folded[f] != entries[f] -> break
			:: f == F -> floor = epoch; break
			od;
			f = 0
		}
	:: atomic { manifest < X && mark < manifest -> mark = manifest; manifest++ }
	od
}

/* It deletes one file, long after it has decided to. */
proctype Pruner() {
	byte f;
	bool doomed;
	do
	:: atomic {
			f = 0; do :: f < F - 1 -> f++ :: break od;
			if
			:: folded[f] == 2 -> skip;
#ifndef NO_DROPPED_MARK
				if :: dropped[f] <= mark -> doomed = true :: else fi
#else
				doomed = true
#endif
			:: folded[f] == 0 && there[f] ->
#ifdef NO_ORPHAN_SEALED
				if :: EPOCH(f) <= epoch -> doomed = true :: else fi
#else
#ifdef NO_ORPHAN_FOLDED
				if :: EPOCH(f) < epoch -> doomed = true :: else fi
#else
				if :: EPOCH(f) < floor -> doomed = true :: else fi
#endif
#endif
			:: else
			fi
		}
		if
		:: doomed -> atomic { assert(!NEEDED(f)); there[f] = false; doomed = false }
		:: else
		fi;
		f = 0
	od
}

init { atomic { run Writer(1); run Writer(2); run Network(); run Compactor(); run Pruner() } }
