package agent

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/internal/test"
)

// guard:agent-items. Without this check: a client sends 16 million empty records in one message of 32 MiB, which become 1 GB in
// memory, on each of 256 streams. The agent is killed, and with it the sessions of all other clients.
func TestManyItems(t *testing.T) {
	const n = maxItems + 1
	empty := bytes.Repeat([]byte{2<<3 | 2, 0}, n) // AppendRequest.records
	inner := bytes.Repeat([]byte{1<<3 | 2, 0}, n)
	lead, err := proto.Marshal(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Append{Append: &agentpb.Append{Records: make([][]byte, n)}}})
	if err != nil || len(lead) < len(inner) {
		t.Fatal(err)
	}
	rows, err := proto.Marshal(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Commit{Commit: &agentpb.Commit{Rows: make([]uint64, 4*n+4)}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		codec codec
		body  []byte
		into  proto.Message
	}{
		"Append":                 {"proto", empty, new(agentpb.AppendRequest)},
		"an append of Lead":      {"proto", lead, new(agentpb.LeadRequest)},
		"the rows of a commit":   {"proto", rows, new(agentpb.LeadRequest)},
		"Append in JSON":         {"json", []byte(`{"records":[` + strings.Repeat(`"",`, n) + `""]}`), new(agentpb.AppendRequest)},
		"many records, no bytes": {"proto", append(empty, 0xff), new(agentpb.AppendRequest)},
	} {
		test.Affords(t, len(c.body), 1, 64<<10, func() {
			if err := c.codec.Unmarshal(c.body, c.into); err == nil || !strings.Contains(err.Error(), "send fewer") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	// What is long is not many.
	text := bytes.Repeat([]byte("a,"), n)
	for _, codec := range []codec{"proto", "json"} {
		body, err := codec.Marshal(&agentpb.AppendRequest{Records: [][]byte{text}})
		if err != nil {
			t.Fatal(err)
		}
		var got agentpb.AppendRequest
		if err := codec.Unmarshal(body, &got); err != nil || !bytes.Equal(got.GetRecords()[0], text) {
			t.Errorf("%s: %v", codec, err)
		}
	}
}
