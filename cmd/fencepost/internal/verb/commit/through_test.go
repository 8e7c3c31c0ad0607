package commit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
)

// What the agent has said is certain, and nothing else.
//
// guard:commit-through-unknown. Without this check: the agent commits the files and dies before it has answered; the torn answer
// counts as "not done"; a script without a cursor commits the files again, and the table has their rows twice.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		outcome bool // unknown
		refused bool
		other   bool
	}{
		"torn": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/connect+proto")
			_, _ = w.Write([]byte{0, 0, 0, 0, 9, 1})
		}, true, false, false},
		"cut off":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true, false, false},
		"unknown":       {says(connect.CodeUnknown), true, false, false},
		"ends":          {says(connect.CodeUnavailable), true, false, false},
		"fenced":        {says(connect.CodeAborted), false, true, false},
		"leads no more": {says(connect.CodeFailedPrecondition), false, false, true},
		"bad file":      {says(connect.CodeInvalidArgument), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.answer)
			defer s.Close()
			out := connect.NewClient[agentpb.CommitRequest, agentpb.CommitResponse](s.Client(), s.URL).CallClientStream(t.Context())
			_ = out.Send(&agentpb.CommitRequest{})
			_, err := out.CloseAndReceive()
			err = refused(err)
			if errors.Is(err, kit.ErrOutcome) != c.outcome || errors.Is(err, kit.ErrRefused) != c.refused || errors.Is(err, errOther) != c.other {
				t.Errorf("%v", err)
			}
		})
	}
}

func says(code connect.Code) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = connect.NewErrorWriter().Write(w, r, connect.NewError(code, errors.New("as the test wants it")))
	}
}
