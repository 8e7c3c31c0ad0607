package cloudtest

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// put is a create of k.
func put(t testing.TB, st store.Store, body []byte) error {
	t.Helper()
	_, err := st.Put(t.Context(), "k", body, &store.PutOptions{If: store.IfAbsent()})
	return err
}

// OthersVersions swaps k at versions that no object of the store can have: all are refused,
// and no request is sent.
func OthersVersions(t *testing.T, st store.Store, s *Stub, versions ...store.Version) {
	t.Helper()
	if err := put(t, st, []byte("x")); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	for _, v := range versions {
		if _, err := st.Put(t.Context(), "k", []byte("y"), &store.PutOptions{If: store.IfMatch(v)}); store.OutcomeOf(err) != store.Refused {
			t.Errorf("%q: %v", v, err)
		}
	}
	if got := s.Kinds(); len(got) != 0 {
		t.Errorf("requests %v", got)
	}
}

// AnswersAreBounded answers requests without end, in a body that begins with begin: no
// answer but an object is read into memory. Parsed are the kinds whose good answers the SDK
// reads, of "put" and "list".
func AnswersAreBounded(t *testing.T, st store.Store, s *Stub, begin string, parsed ...string) {
	t.Helper()
	const most = 64 << 20 // 8 MiB are read, and what is in buffers
	for kind, ask := range map[string]func() error{
		"put":  func() error { return put(t, st, []byte("x")) },
		"list": func() error { return ListErr(t, st) },
		"get":  func() error { _, _, err := Get(t, st, "k", nil); return err },
	} {
		for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
			if status == http.StatusOK && !strings.Contains(strings.Join(parsed, " "), kind) {
				continue
			}
			wrote := make(chan int, 1)
			s.On(kind, 0, Fault{Answers: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, begin)
				piece, n := []byte(strings.Repeat("x", 1<<20)), 0
				for n < most {
					m, err := w.Write(piece)
					if n += m; err != nil {
						break
					}
				}
				wrote <- n
			}})
			if err := ask(); err == nil {
				t.Errorf("%s, %d: no error", kind, status)
			} else if len(err.Error()) > 2000 {
				t.Errorf("%s, %d: an error of %d bytes", kind, status, len(err.Error()))
			}
			if n := <-wrote; n >= most {
				t.Errorf("%s, %d: all of %d bytes were read", kind, status, n)
			}
		}
	}
}

// Means is what an answer means to each kind of request.
type Means struct {
	Create, Swap store.Outcome
	Get, List    error // the Kind; nil: nobody can tell, so it can be retried
}

// Meaning returns what an answer means to a create, a swap, a read and a listing.
func Meaning(create, swap store.Outcome, get, list error) Means {
	return Means{create, swap, get, list}
}

// Unknown is what an answer means that tells nothing.
var Unknown = Meaning(store.Unknown, store.Unknown, nil, nil)

// Rejects is what an answer means that rejects every request.
func Rejects(kind error) Means { return Meaning(store.Rejected, store.Rejected, kind, kind) }

// Answered sends a request of each kind to a store that gives all the same answer, with
// "Retry-After: 7". It returns the error of the create. Version is one that objects could
// have.
func Answered(t *testing.T, st store.Store, version store.Version, status int, code string, want Means) error {
	t.Helper()
	create := put(t, st, []byte("x"))
	_, swap := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfMatch(version)})
	_, _, read := Get(t, st, "k", nil)
	if got := store.OutcomeOf(create); got != want.Create {
		t.Errorf("create: %v is %v, want %v", create, got, want.Create)
	}
	if got := store.OutcomeOf(swap); got != want.Swap {
		t.Errorf("swap: %v is %v, want %v", swap, got, want.Swap)
	}
	for what, pair := range map[string][2]error{"get": {read, want.Get}, "list": {ListErr(t, st), want.List}} {
		var e *store.Error
		if !errors.As(pair[0], &e) || !errors.Is(e.Kind, pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		} else if e.Status != status || e.Code != code || e.RetryAfter.Seconds() != 7 || e.Op != what {
			t.Errorf("%s: %+v", what, e)
		}
	}
	return create
}

// Logins writes with credentials that set makes fail. Without any the request is rejected.
// Later they may come back, so the outcome is unknown. There is what the error says when
// they work.
func Logins(t *testing.T, st store.Store, set func(error), there string) {
	t.Helper()
	set(errors.New("no such account"))
	if err := put(t, st, []byte("x")); store.OutcomeOf(err) != store.Rejected || !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "no such account") {
		t.Errorf("never there: %v", err)
	}
	set(nil)
	if err := put(t, st, []byte("x")); err == nil || !strings.Contains(err.Error(), there) {
		t.Errorf("there: %v", err)
	}
	set(errors.New("metadata server is away"))
	if err := put(t, st, []byte("x")); store.OutcomeOf(err) != store.Unknown || store.Permanent(err) || !strings.Contains(err.Error(), "metadata server is away") {
		t.Errorf("away: %v", err)
	}
}
