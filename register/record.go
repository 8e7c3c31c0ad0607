package register

import (
	"bytes"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store/document"
)

// MaxValue is the length of the longest value, in bytes.
const MaxValue = 1 << 20

// maxRecord bounds the object. JSON writes some bytes as six.
const maxRecord = 6*MaxValue + 4096

// State is what a register holds.
type State struct {
	// Epoch owns the register.
	Epoch fence.Epoch
	// Value is nil if none was ever set.
	Value []byte
	// Writes counts the writes of the object, claims included.
	Writes uint64
	// Time is when the value was set, by the time of day of its writer. It is for people.
	Time time.Time
}

// record is the object of a register.
type record struct {
	Format int         `json:"format"`
	Epoch  fence.Epoch `json:"epoch"`
	// Owner is fresh with each opening, and Nonce with each write.
	Owner  fence.ID  `json:"owner"`
	Nonce  fence.ID  `json:"nonce"`
	Writes uint64    `json:"writes"`
	Time   time.Time `json:"time"`
	// One of them is set if there is a value: Text if the value is UTF-8.
	Text  *string `json:"text,omitempty"`
	Bytes []byte  `json:"bytes,omitempty"`
}

func (r *record) value() []byte {
	switch {
	case r.Text != nil:
		return []byte(*r.Text)
	case len(r.Bytes) > 0:
		return r.Bytes
	}
	return nil
}

func (r *record) set(value []byte) {
	r.Text, r.Bytes = nil, nil
	switch {
	case value == nil:
	case utf8.Valid(value):
		s := string(value)
		r.Text = &s
	default:
		r.Bytes = bytes.Clone(value)
	}
}

func (r *record) encode(key string) ([]byte, error) {
	r.Format = document.Format
	return document.Encode(key, r)
}

func decode(key string, body []byte) (r record, err error) {
	if err := document.Decode(key, body, &r); err != nil {
		return record{}, err
	}
	switch {
	case r.Epoch == 0, r.Writes == 0, r.Owner == fence.ID{}:
		return record{}, document.Corrupt(key, "it has no epoch, no owner or no count of writes, and so it is no register")
	case r.Text != nil && r.Bytes != nil:
		return record{}, document.Corrupt(key, "it has two values")
	case len(r.value()) > MaxValue:
		return record{}, document.Corrupt(key, "its value has %d bytes; the limit is %d", len(r.value()), MaxValue)
	}
	return r, nil
}

func checkValue(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: the value has %d bytes; at most %d fit. Put it into an object of its own, and that object's key into the register", ErrOptions, len(value), MaxValue)
	}
	return nil
}
