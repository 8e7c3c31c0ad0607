package group

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/assign"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/member"
)

const (
	// maxSmall bounds the objects of members, calls and hints that are read, in bytes.
	maxSmall = 64 << 10
	// maxList bounds the objects that name partitions.
	maxList = 4 << 20
)

// The bodies of the objects are JSON, but for assignments.
type (
	head struct {
		Format   int      `json:"format"`
		Requires []string `json:"requires,omitempty"`
		Nonce    string   `json:"nonce"`
	}
	recordWire struct {
		head
		Identity   string `json:"identity"`
		Weight     uint64 `json:"weight"`
		Data       string `json:"data,omitempty"`
		ValidityMS int64  `json:"validity_ms"`
		RenewMS    int64  `json:"renew_ms"`
		Renewals   uint64 `json:"renewals"`
		Expired    bool   `json:"expired"`
		By         string `json:"expired_by,omitempty"`
	}
	callWire struct {
		head
		Given []givenWire `json:"given"`
	}
	givenWire struct {
		Partition int    `json:"partition"`
		Since     uint64 `json:"since"`
		Fresh     bool   `json:"fresh,omitempty"`
	}
	ackWire struct {
		head
		Number uint64 `json:"number"`
		// Runs are pairs: the first and the last partition of a run.
		Runs []int `json:"runs"`
	}
	signWire struct{ head }
	hintWire struct {
		head
		Number uint64 `json:"number"`
	}
)

// encode returns the bytes of a document. Equal documents have equal bytes.
func encode(doc any) ([]byte, error) {
	h := func(nonce string) head { return head{Format: document.Format, Nonce: nonce} }
	var v any
	switch d := doc.(type) {
	case *assign.Assignment:
		return d.Encode(), nil
	case *member.Record:
		v = recordWire{
			head: h(d.Nonce), Identity: d.Identity, Weight: d.Weight, Data: d.Data, ValidityMS: d.Validity.Milliseconds(),
			RenewMS: d.Renew.Milliseconds(), Renewals: d.Renewals, Expired: d.Expired, By: d.By,
		}
	case *member.Call:
		w := callWire{head: h(d.Nonce)}
		for _, g := range d.Given {
			w.Given = append(w.Given, givenWire(g))
		}
		v = w
	case *member.Ack:
		v = ackWire{head: h(d.Nonce), Number: d.Number, Runs: runs(d.Partitions)}
	case *member.Sign:
		v = signWire{h(d.Nonce)}
	case *member.Head:
		v = hintWire{h(d.Nonce), d.Number}
	default:
		return nil, fmt.Errorf("group: no such document: %T", doc)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	return append(b, '\n'), nil
}

// runs returns the runs of sorted partitions.
func runs(ps []int) (all []int) {
	for i, p := range ps {
		if i > 0 && p == ps[i-1]+1 {
			all[len(all)-1] = p
		} else {
			all = append(all, p, p)
		}
	}
	return all
}

func unrun(all []int) ([]int, error) {
	var ps []int
	last := -1
	if len(all)%2 != 0 {
		return nil, errors.New("a run has no end")
	}
	for i := 0; i < len(all); i += 2 {
		if all[i] <= last || all[i+1] < all[i] || all[i+1] >= assign.MaxPartitions {
			return nil, fmt.Errorf("run %d to %d after %d", all[i], all[i+1], last)
		}
		for p := all[i]; p <= all[i+1]; p++ {
			ps = append(ps, p)
		}
		last = all[i+1]
	}
	return ps, nil
}

// limit is how many bytes of an object are read.
func limit(key string) int64 {
	switch {
	case strings.HasPrefix(key, member.AssignPrefix):
		return assign.MaxBytes
	case strings.HasPrefix(key, member.AckPrefix), strings.HasPrefix(key, member.CallPrefix):
		return maxList
	}
	return maxSmall
}

// decode reads the object under key.
func decode(key string, body []byte) (any, error) {
	switch {
	case strings.HasPrefix(key, member.AssignPrefix):
		return assign.Decode(key, body)
	case key == member.FormatKey:
		f, err := decodeFormat(body)
		return &member.Format{Partitions: f.Partitions}, err
	case key == member.HeadKey:
		var w hintWire
		err := read(key, body, &w, &w.head)
		return &member.Head{Nonce: w.Nonce, Number: w.Number}, err
	case strings.HasPrefix(key, member.MemberPrefix):
		return decodeRecord(key, body)
	case strings.HasPrefix(key, member.CallPrefix):
		var w callWire
		err := read(key, body, &w, &w.head)
		d := &member.Call{Nonce: w.Nonce}
		for _, g := range w.Given {
			d.Given = append(d.Given, member.Given(g))
		}
		return d, err
	case strings.HasPrefix(key, member.AckPrefix):
		var w ackWire
		if err := read(key, body, &w, &w.head); err != nil {
			return nil, err
		}
		ps, err := unrun(w.Runs)
		if err != nil {
			return nil, document.Corrupt(key, "%v", err)
		}
		return &member.Ack{Nonce: w.Nonce, Number: w.Number, Partitions: ps}, nil
	}
	return nil, document.Corrupt(key, "no such object")
}

func decodeRecord(key string, body []byte) (*member.Record, error) {
	var w recordWire
	if err := read(key, body, &w, &w.head); err != nil {
		return nil, err
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	switch most := maxValidity.Milliseconds(); {
	case w.ValidityMS < 1 || w.ValidityMS > most:
		return nil, document.Corrupt(key, "validity_ms is %d, not 1 to %d", w.ValidityMS, most)
	case w.RenewMS < 1 || w.RenewMS > w.ValidityMS:
		return nil, document.Corrupt(key, "renew_ms is %d, not 1 to %d", w.RenewMS, w.ValidityMS)
	}
	return &member.Record{
		Identity: w.Identity, Weight: w.Weight, Data: w.Data, Validity: ms(w.ValidityMS), Renew: ms(w.RenewMS),
		Nonce: w.Nonce, Renewals: w.Renewals, Expired: w.Expired, By: w.By,
	}, nil
}

// read decodes JSON and checks that this program may read it.
func read(key string, body []byte, v any, h *head) error {
	err := json.Unmarshal(body, v)
	return document.Readable(key, body, h.Format, h.Requires, err)
}
