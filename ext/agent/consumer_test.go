package agent_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

// guard:agent-consumer. Without this check: two clients follow with one name through one agent; the first one, which was
// superseded, notes records that it has handled and the second one has not; the second one dies, and its successor begins after
// them.
func TestConsumerSuperseded(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	l.Lead(3)
	s := serve(t, l, &agent.Options{})
	consumer := func(epoch uint64, at *uint64) (*agentpb.ConsumerResponse, error) {
		return call[agentpb.ConsumerRequest, agentpb.ConsumerResponse](s, "Consumer", &agentpb.ConsumerRequest{Url: url, Name: "c", Epoch: epoch, Next: at})
	}
	first, err := consumer(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := consumer(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consumer(second.GetEpoch(), new(uint64(1))); err != nil {
		t.Error(err)
	}
	for epoch, code := range map[uint64]connect.Code{
		first.GetEpoch(): connect.CodeAborted, 0: connect.CodeInvalidArgument, second.GetEpoch() + 1: connect.CodeFailedPrecondition,
	} {
		if a, err := consumer(epoch, new(uint64(3))); connect.CodeOf(err) != code {
			t.Errorf("epoch %d: %v, %v", epoch, a, err)
		}
	}
	if third, err := consumer(0, nil); err != nil || third.GetNext() != 1 {
		t.Errorf("%v, %v", third, err)
	}
}
