package delta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/store"
)

// Commits are read line by line. What a line takes in memory is paid for before it is decoded.

const (
	// maxCommit bounds a commit, in bytes, maxInfo its first line, which proves the state, and maxLine each
	// other line. The longest has the schema of the table.
	maxCommit = 256 << 20
	maxInfo   = 4 << 10
	maxLine   = 16 << 20
	// maxJSON bounds how deep objects and lists lie in each other. Five levels are needed.
	maxJSON = 16
	// smallCommit is what is read of a commit without looking at its first line before.
	smallCommit = 64 << 10
	// What the actions of a commit may take in memory, in bytes: some, some for each byte, and at most so
	// much. A file takes about 1,500.
	commitMemory    = 1 << 20
	commitFactor    = 16
	maxCommitMemory = 768 << 20
	// What an object and what another element of a list or of an object takes.
	objectMemory = 200
	memberMemory = 64
)

// decodeCommit reads the actions of a commit. It leaves out actions of a kind that this package does
// not know: the state does not fit then, unless they change nothing. Of a commit that is not ours it
// returns only who wrote it.
func decodeCommit(key string, body []byte) ([]action, error) {
	wrong := func(line int, err error) error {
		return fmt.Errorf("%w: %s, line %d: %w", ErrDamaged, key, line, err)
	}
	info, ours, err := decodeHead(body)
	if err != nil {
		return nil, wrong(1, err)
	}
	// guard:delta-commit-ours. The actions of a commit are decoded only if its first line is ours.
	//
	//mutant:replace !ours => !ours && len(info) > len(body)
	if !ours {
		return info, nil
	}
	if err := affordable(body, wrong); err != nil {
		return nil, err
	}
	var actions []action
	n := 0
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		if n++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var a action
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, wrong(n, err)
		}
		if a != (action{}) {
			actions = append(actions, a)
		}
	}
	return actions, nil
}

// decodeHead reads who wrote a commit from its begin, and whether that is this package.
func decodeHead(body []byte) (info []action, ours bool, err error) {
	body = bytes.TrimLeft(body, "\r\n")
	head := body[:min(len(body), maxInfo)]
	switch first, _, ended := bytes.Cut(head, []byte("\n")); {
	case len(bytes.TrimSpace(head)) == 0:
		return nil, false, errors.New("it has no action")
	case head[0] != '{':
		return nil, false, errors.New("it is no action")
	case !ended && len(body) > maxInfo:
		return nil, false, nil // no first line of ours is so long
	case !bytes.HasPrefix(first, []byte(`{"commitInfo"`)):
		var none struct{}
		if err := json.Unmarshal(first, &none); err != nil {
			return nil, false, err
		}
	}
	for line := range bytes.SplitSeq(head, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte(`{"commitInfo"`)) {
			continue // other programs have it at another place
		}
		var a action
		err := json.Unmarshal(line, &a)
		first := bytes.HasPrefix(head, line)
		switch {
		case err != nil && first:
			return nil, false, err
		case err != nil || a.Info == nil:
			continue
		case !first:
			a.Info.Fencepost = nil // a proof is in the first line
		}
		return []action{{Info: a.Info}}, a.Info.Fencepost != nil, nil
	}
	return nil, false, nil
}

// affordable checks that the lines of a commit can be decoded in a bounded amount of memory.
//
// guard:delta-commit-memory. A publisher reads a commit only if the memory that its actions take is in
// proportion to the object, and below a bound.
//
//mutant:replace afford < 0 => false
func affordable(body []byte, wrong func(line int, err error) error) error {
	afford := min(commitMemory+commitFactor*int64(len(body)), maxCommitMemory)
	n := 0
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		if n++; len(line) > maxLine {
			return wrong(n, fmt.Errorf("it has %d bytes; at most %d are possible", len(line), maxLine))
		}
		bytes, err := lineMemory(line)
		if err != nil {
			return wrong(n, err)
		}
		if afford -= bytes; afford < 0 {
			return wrong(n, errors.New("the actions up to here take too much memory for the size of the commit"))
		}
	}
	return nil
}

// lineMemory returns what a line takes when it is decoded.
func lineMemory(line []byte) (bytes int64, err error) {
	depth, quoted := 0, false
	bytes = int64(len(line))
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			if bytes += objectMemory; depth == maxJSON {
				return 0, fmt.Errorf("it has more than %d levels", maxJSON)
			}
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			bytes += memberMemory
		}
	}
	return bytes, nil
}

// commit reads a commit. Of a large one that is not ours it reads only the begin.
func (t *table) commit(ctx context.Context, l *listing, version int64) ([]action, error) {
	if l.commits[version].Size > smallCommit {
		head, err := t.proof(ctx, l, version)
		if p, _ := proofOf(head); err != nil || p == nil {
			return head, err
		}
	}
	key := commitKey(version)
	body, err := t.read(ctx, l.commits[version], &store.ReadOptions{Limit: maxCommit, Settle: t.settle})
	if errors.Is(err, store.ErrTooLarge) {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, key, err)
	}
	if err != nil {
		return nil, err
	}
	return decodeCommit(key, body)
}

// proof reads only the proof of a commit. The first one of a table may name a million files.
func (t *table) proof(ctx context.Context, l *listing, version int64) ([]action, error) {
	head, err := t.read(ctx, l.commits[version], &store.ReadOptions{Length: maxInfo + 1, Settle: t.settle})
	if err != nil {
		return nil, err
	}
	info, _, err := decodeHead(head)
	if err != nil {
		return nil, fmt.Errorf("%w: %s, line 1: %w", ErrDamaged, commitKey(version), err)
	}
	return info, nil
}
