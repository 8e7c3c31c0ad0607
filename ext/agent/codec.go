package agent

import (
	"bytes"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/fencepost/fencepost/ext/agent/agentpb"
)

// maxItems is how many records and other items a message has. An empty one takes 2 bytes of it, and 24 in memory.
const maxItems = 1 << 20

// codecs are those of connect, for messages that take little more memory than they have bytes.
func codecs() []connect.HandlerOption {
	var all []connect.HandlerOption
	for _, name := range []string{"proto", "json", "json; charset=utf-8"} {
		all = append(all, connect.WithCodec(codec(name)))
	}
	return all
}

// codec is one of a name.
type codec string

// Name implements connect.Codec.
func (c codec) Name() string { return string(c) }

// Marshal implements connect.Codec.
func (c codec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

// MarshalAppend saves connect a copy.
func (c codec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	switch {
	case !ok:
		return nil, fmt.Errorf("agent: %T is no message", m)
	case c == "proto":
		return proto.MarshalOptions{}.MarshalAppend(dst, p)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, p)
}

// Unmarshal implements connect.Codec.
func (c codec) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("agent: %T is no message", m)
	}
	// guard:agent-items. A message with very many small items is refused before it is decoded.
	//
	//mutant:replace c.items(data, p) > maxItems => false
	if c.items(data, p) > maxItems {
		return fmt.Errorf("agent: the message has more than %d records or other items; send fewer in one", maxItems)
	}
	if c == "proto" {
		return proto.Unmarshal(data, p)
	}
	if len(data) == 0 {
		return errors.New("agent: the message is empty, and no JSON object")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, p)
}

// items is about how many items a message has.
func (c codec) items(data []byte, m proto.Message) int {
	if c != "proto" {
		return bytes.Count(data, []byte(","))
	}
	_, nested := m.(*agentpb.LeadRequest)
	return fields(data, nested)
}

// fields counts the fields of a message, and those of the messages in it.
func fields(data []byte, nested bool) (n int) {
	for len(data) > 0 {
		num, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return n // it is refused anyway
		}
		size := protowire.ConsumeFieldValue(num, kind, data[tag:])
		if size < 0 {
			return n
		}
		n++
		if inner, _ := protowire.ConsumeBytes(data[tag:]); nested && kind == protowire.BytesType {
			switch num {
			case 2: // Append
				n += fields(inner, false)
			case 4: // Commit, whose numbers of rows take a byte each, and 8 in memory
				n += len(inner) / 4
			}
		}
		data = data[tag+size:]
	}
	return n
}
