/* Files against pruning.

   The writers of epochs 1 and 2 upload files. They commit a file with an edit in the log
   that names it. Edits may also remove files. A compactor folds the edits into the
   manifest and raises the mark. It deletes files that were dropped at or below the mark,
   and orphans, which no edit names. It decides with a manifest and a listing that may be
   old when it deletes. A file's upload may land late.

   Each of F files belongs to an epoch. X is the highest number of manifests.

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

byte epoch = 1;		/* the epoch of the log's tail; lower epochs are sealed */
byte entries[F];	/* number of edits in the log about the file: add, remove, add again */
bool sent[F], settled[F];	/* the upload was sent; its writer has seen the file */
bool there[F];		/* the file exists */

byte manifest;		/* number of the newest manifest */
byte folded[F];		/* number of the file's edits that it contains */
byte floor = 1;		/* epochs below it are folded */
byte dropped[F];	/* the version that dropped the file */
byte mark;

/* A reader of the log, or of a version above the mark, may need the file. */
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
				/* A file that the history names exists. */
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

/* Uploads land late, perhaps more than once. A writer seals its predecessor's epoch. */
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
	:: atomic { manifest < X ->	/* fold an edit */
			f = 0; do :: f < F - 1 -> f++ :: break od;
			if
			:: folded[f] < entries[f] ->
				manifest++; folded[f]++;
				if :: folded[f] == 2 -> dropped[f] = manifest :: else fi
			:: else
			fi;
			f = 0
		}
	:: atomic { floor < epoch ->	/* fold the seal when all before it is folded */
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

/* The part of the compactor that deletes a file, perhaps long after its decision. */
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
