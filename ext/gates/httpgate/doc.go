// Package httpgate fences an HTTP service: its requests carry the epoch of the leader that sends
// them, and the service refuses those of deposed leaders.
//
// The service:
//
//	http.Handle("/", httpgate.Handler(fence.NewGate(kept), next, nil))
//
// Its clients:
//
//	client := &http.Client{Transport: httpgate.Transport(term.Token(), nil)}
//
// and scripts, with the epoch of fencepost exec:
//
//	curl --fail --header "Fencepost-Epoch: $FENCEPOST_EPOCH" --data-binary @FILE URL
//
// A gate lives in the memory of one process. A service that is restarted forgets the highest
// epoch, unless it keeps fence.Gate.Highest before each effect and begins with it; one that has several processes must keep it
// where they all look. If the service writes to a database, use package sqlgate behind it, with
// [Epoch] of the request.
package httpgate
