package kubelock

import (
	"encoding/json"
	"maps"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store/document"
)

// maxRecord bounds the object of a record, in bytes.
const maxRecord = 64 << 10

// maxEpoch is the greatest epoch of a lock: the same as that of other elections. An epoch near the
// greatest number there is would leave none for the terms after it.
const maxEpoch = 1<<62 + 1<<40

// record is the object of a lock.
type record struct {
	resourcelock.LeaderElectionRecord
	own own
	// others are the members that this program does not know. Each write keeps them.
	others map[string]json.RawMessage
}

// own is what Fencepost adds to client-go's record.
type own struct {
	// Epoch is that of the holder's term. It is 0 only while a record is being created.
	Epoch fence.Epoch `json:"epoch"`
	// Lock is fresh with each Lock in memory, and Nonce with each write.
	Lock  fence.ID `json:"lock"`
	Nonce fence.ID `json:"nonce"`
}

// ownMember has our part. format and checksum are those of every document.
const ownMember = "fencepost"

func (r *record) encode(key string) ([]byte, error) {
	doc := maps.Clone(r.others)
	if doc == nil {
		doc = map[string]json.RawMessage{}
	}
	for _, part := range []any{r.LeaderElectionRecord, map[string]any{ownMember: r.own, "format": document.Format}} {
		b, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			return nil, err
		}
	}
	return document.Encode(key, doc)
}

func decode(key string, body []byte) (*record, error) {
	var r record
	if err := document.Decode(key, body, &r.others); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &r.LeaderElectionRecord); err != nil {
		return nil, document.Corrupt(key, "%v", err)
	}
	if err := json.Unmarshal(r.others[ownMember], &r.own); err != nil {
		return nil, document.Corrupt(key, "its member %q: %v", ownMember, err)
	}
	if r.own.Lock == (fence.ID{}) || r.own.Nonce == (fence.ID{}) {
		return nil, document.Corrupt(key, "it has no lock or no nonce, and so it is no record of a lock")
	}
	if r.own.Epoch > maxEpoch {
		return nil, document.Corrupt(key, "it has epoch %v, which no counting reaches, so something else has written it; delete it: the next epoch then follows the register's", r.own.Epoch)
	}
	delete(r.others, "checksum")
	return &r, nil
}
