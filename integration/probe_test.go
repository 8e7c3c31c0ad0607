//go:build integration

package integration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	_ "github.com/fencepost/fencepost/store/s3store" // s3://
)

// onEach runs a test on each of some servers.
func onEach(t *testing.T, kinds []*servers.Kind, test func(t *testing.T, s *servers.Server)) {
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) { test(t, servers.Start(t, kind)) })
	}
}

// open opens the store at a URL of a server.
func open(t *testing.T, url string) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// separate returns probe options with a connection for each client.
func separate(url string) *probe.Options {
	return &probe.Options{Open: func(ctx context.Context) (store.Store, error) { return store.Open(ctx, url) }}
}

func TestProbeAcceptsRealServers(t *testing.T) {
	onEach(t, servers.Conforming, func(t *testing.T, s *servers.Server) {
		url, kind := s.URL("probe"), s.Kind
		st := open(t, url)
		for name, opts := range map[string]*probe.Options{"defaults": nil, "separate clients": separate(url)} {
			report, err := probe.Run(t.Context(), st, opts)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			t.Logf("%s: %v", name, report)
			for _, promise := range []string{probe.Create, probe.CreateAtomic, probe.Swap, probe.SwapAtomic, probe.ListWrite} {
				if !slices.Contains(report.Kept, promise) {
					t.Errorf("%s: the report does not say that %q is kept", name, promise)
				}
			}
			if report.Leftover != 0 {
				t.Errorf("%s: %d objects left", name, report.Leftover)
			}
			// This is known of the three servers; if it changes, find out why.
			if want := kind != servers.GoFakeS3; report.ConditionalUpload != want {
				t.Errorf("%s: conditional upload %t, want %t", name, report.ConditionalUpload, want)
			}
			if !report.ContentVersions {
				t.Errorf("%s: versions that do not depend on the content alone", name)
			}
			// versitygw's Date lags by up to two seconds, which may count as a wrong
			// clock.
			if !report.StoreClock && kind != servers.VersityGW {
				t.Errorf("%s: the server's clock was not recognised", name)
			}
		}
		for info, err := range st.List(t.Context(), "", nil) {
			t.Errorf("the probe left %q, %v", info.Key, err)
		}
	})
}

// TestT10_ProbeRefusesAServerThatIgnoresConditions uses s3rver, which overwrites an
// object in spite of If-None-Match: *.
func TestT10_ProbeRefusesAServerThatIgnoresConditions(t *testing.T) {
	url := servers.Start(t, servers.S3rver).URL("probe")
	_, err := probe.Run(t.Context(), open(t, url), separate(url))
	var refused *probe.Error
	if !errors.As(err, &refused) || !errors.Is(err, probe.ErrRefused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if refused.Promise != probe.Create || !strings.Contains(err.Error(), probe.Create) {
		t.Errorf("the error does not name the broken promise %q: %v", probe.Create, err)
	}
	t.Log(err)
}
