package fence

import (
	"fmt"
	"strconv"
)

// Epoch is the number of a leadership. Epochs only rise. 0 is the time before the first.
type Epoch uint64

func (e Epoch) String() string { return strconv.FormatUint(uint64(e), 10) }

// Token is the right to write in one epoch. An election gives it to its winner; so can
// anything else that hands out strictly rising numbers. The zero Token gives no right.
//
// Each opening of a writer needs a token of its own, greater than all before it.
type Token struct{ epoch Epoch }

// NewToken makes the token of an epoch from elsewhere, such as an etcd revision or a
// ZooKeeper zxid. Epochs begin at 1. NewToken(0) is the zero Token, which gives no right.
func NewToken(epoch Epoch) Token { return Token{epoch} }

// Epoch returns the epoch that the token is for.
func (t Token) Epoch() Epoch { return t.epoch }

// Valid reports whether the token gives any right.
func (t Token) Valid() bool { return t.epoch > 0 }

func (t Token) String() string { return "epoch " + t.epoch.String() }

// Position names a slot of the log: that of the object data/<epoch>/<seq>. Seq begins at 1.
type Position struct {
	Epoch Epoch  `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Before reports whether p comes before q: in an earlier epoch, or in the same one with a smaller seq.
func (p Position) Before(q Position) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Seq < q.Seq
}

func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Epoch, p.Seq) }
