package kubelock

import (
	"context"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencepost/fencepost/fence"
)

// Leases is the part of client-go's LeaseInterface that [LeaseToken] needs:
// clientset.CoordinationV1().Leases(namespace).
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
}

// LeaseToken returns a token for the process that holds a Lease of the API server, under the
// identity holder. Call it in OnStartedLeading, with its context. It sends one request.
//
// The token is the Lease's metadata.resourceVersion. Each write of the Lease gets a greater one,
// also after the Lease was deleted and created again. So a token that was read while A held the
// Lease is less than every token that is read while a later holder has it.
//
// That holds under three conditions:
//
//   - The API server keeps Leases in an etcd, whose revision only rises. It goes back when etcd is
//     restored from a backup. Restore with a bump of the revision, or start with new places.
//   - No two processes, and no two terms, have the same identity. A frozen pod "worker-0" that wakes
//     up would find its successor of the same name in the Lease, and take the successor's token.
//     controller-runtime adds a UUID to the host name; do the same.
//   - The request reaches the API server, as client-go's clientset does, and not an informer's cache.
//     What a cache returns may be old. That is safe, but such a token may be refused.
//
// Two calls in one term may return the same token, or a greater one. A writer needs a new token
// each time that it is opened: so open one in a term.
//
// The other fields are no tokens. spec.leaseTransitions begins again at 0 when the Lease is
// deleted, and does not change when a holder of the same name follows. metadata.uid has no order.
// metadata.generation is not counted for Leases. The times are those of the holders' clocks.
//
// The error is [ErrNotHolder] if somebody else holds the Lease, or if ctx has ended; else that of
// the API server.
func LeaseToken(ctx context.Context, leases Leases, name, holder string) (fence.Token, error) {
	if holder == "" {
		return fence.Token{}, fmt.Errorf("%w: the holder's identity is empty", ErrOptions)
	}
	// With no resourceVersion in the options the server answers with what etcd has now.
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fence.Token{}, err
	}
	// guard:lease-holder. A token is the resourceVersion of a Lease that names the caller as its
	// holder.
	//
	//mutant:replace found != holder => false
	if found := value(lease.Spec.HolderIdentity); found != holder {
		return fence.Token{}, fmt.Errorf("%w: the Lease %s is held by %q, not by %q", ErrNotHolder, name, found, holder)
	}
	// guard:lease-late-token. The token is given only while the caller's context lives.
	//
	//mutant:replace ctx.Err() != nil => false
	if ctx.Err() != nil {
		return fence.Token{}, fmt.Errorf("%w: the term's context has ended: %w", ErrNotHolder, context.Cause(ctx))
	}
	revision, err := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if err != nil || revision == 0 {
		return fence.Token{}, fmt.Errorf("kubelock: the Lease %s has resourceVersion %q, which is no number from 1 on: this API server's versions are no tokens", name, lease.ResourceVersion)
	}
	return fence.NewToken(fence.Epoch(revision)), nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
