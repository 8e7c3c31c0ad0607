package fence

import (
	"cmp"
	"fmt"
	"strconv"
)

// Epoch numbers leaderships. It only rises. 0 is the time before the first.
type Epoch uint64

func (e Epoch) String() string { return strconv.FormatUint(uint64(e), 10) }

// Token is the right to write in one epoch: what an election, or anything else
// that hands out strictly rising numbers, gives to its winner. The zero Token
// gives no right.
//
// A token must not be used for two openings of a writer, and a later token must
// be greater than all before it.
type Token struct{ epoch Epoch }

// NewToken makes a token of an epoch from elsewhere: an etcd revision, a
// ZooKeeper zxid. Epochs begin at 1; NewToken(0) is the zero Token, which
// everybody refuses.
func NewToken(epoch uint64) Token { return Token{Epoch(epoch)} }

// Epoch returns the epoch that the token is for.
func (t Token) Epoch() Epoch { return t.epoch }

// Valid reports whether the token gives any right.
func (t Token) Valid() bool { return t.epoch > 0 }

func (t Token) String() string { return "epoch " + t.epoch.String() }

// Position is a slot of the log: the object data/<epoch>/<seq>. Seq begins at 1.
type Position struct {
	Epoch Epoch  `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Compare orders positions by epoch, then by seq: -1, 0 or +1.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Seq, q.Seq))
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool { return p.Compare(q) < 0 }

func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Epoch, p.Seq) }
