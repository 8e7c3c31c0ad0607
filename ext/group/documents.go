package group

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store/document"
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
		Tenure    uint64 `json:"tenure"`
		Fresh     bool   `json:"fresh,omitempty"`
		Hung      bool   `json:"hung,omitempty"`
		Sound     bool   `json:"sound,omitempty"`
	}
	ackWire struct {
		head
		Number uint64 `json:"number"`
		// Partitions are runs, in order: "0-3 7 9-12".
		Partitions string `json:"partitions"`
	}
	signWire struct{ head }
	hintWire struct {
		head
		Group  fence.ID `json:"group"`
		Number uint64   `json:"number"`
	}
)

// encode returns the bytes of the document under key. Equal documents have equal bytes.
func encode(key string, doc any) ([]byte, error) {
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
		v = ackWire{head: h(d.Nonce), Number: d.Number, Partitions: runs(d.Partitions)}
	case *member.Sign:
		v = signWire{h(d.Nonce)}
	case *member.Head:
		v = hintWire{h(d.Nonce), d.Group, d.Number}
	default:
		return nil, fmt.Errorf("group: no such document: %T", doc)
	}
	b, err := document.Encode(key, v)
	if err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	return b, nil
}

// runs writes sorted partitions as runs.
func runs(ps []int) string {
	var b []byte
	for i := 0; i < len(ps); {
		first := ps[i]
		for i++; i < len(ps) && ps[i] == ps[i-1]+1; i++ { // the run goes on
		}
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(first), 10)
		if last := ps[i-1]; last > first {
			b = strconv.AppendInt(append(b, '-'), int64(last), 10)
		}
	}
	return string(b)
}

// unrun reads what runs writes.
func unrun(s string) (ps []int, err error) {
	last := -1
	for run := range strings.FieldsSeq(s) {
		from, to, more := strings.Cut(run, "-")
		if !more {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		end, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first <= last || end < first || end >= assign.MaxPartitions {
			return nil, fmt.Errorf("the run %q of partitions after %d", run, last)
		}
		for p := first; p <= end; p++ {
			ps = append(ps, p)
		}
		last = end
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
		err := document.Decode(key, body, &w)
		return &member.Head{Nonce: w.Nonce, Group: w.Group, Number: w.Number}, err
	case strings.HasPrefix(key, member.MemberPrefix):
		return decodeRecord(key, body)
	case strings.HasPrefix(key, member.CallPrefix):
		var w callWire
		err := document.Decode(key, body, &w)
		d := &member.Call{Nonce: w.Nonce}
		for _, g := range w.Given {
			d.Given = append(d.Given, member.Given(g))
		}
		return d, err
	case strings.HasPrefix(key, member.AckPrefix):
		var w ackWire
		if err := document.Decode(key, body, &w); err != nil {
			return nil, err
		}
		ps, err := unrun(w.Partitions)
		if err != nil {
			return nil, document.Corrupt(key, "%v", err)
		}
		return &member.Ack{Nonce: w.Nonce, Number: w.Number, Partitions: ps}, nil
	}
	return nil, document.Corrupt(key, "no such object")
}

func decodeRecord(key string, body []byte) (*member.Record, error) {
	var w recordWire
	if err := document.Decode(key, body, &w); err != nil {
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
