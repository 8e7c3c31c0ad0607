package s3store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
)

// What a bucket does to objects by itself is told as far as it is for a prefix; rules
// that are off, or for what no log has, are left out.
func TestExpiries(t *testing.T) {
	const off = `<Status>Disabled</Status>`
	const on = `<Status>Enabled</Status>`
	srv := start(t, &s3stub.Options{Lifecycle: `` +
		`<Rule><ID>all</ID>` + on + `<Filter></Filter><Expiration><Days>30</Days></Expiration></Rule>` +
		`<Rule><ID>old style</ID>` + on + `<Prefix>logs/orders/data/</Prefix><Expiration><Date>2027-01-02T00:00:00Z</Date></Expiration></Rule>` +
		`<Rule><ID>and</ID>` + on + `<Filter><And><Prefix>logs/</Prefix><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan></And></Filter>` +
		`<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition><Transition><Days>1</Days><StorageClass>STANDARD_IA</StorageClass></Transition></Rule>` +
		`<Rule><ID>another log</ID>` + on + `<Filter><Prefix>logs/orders2/</Prefix></Filter><Expiration><Days>30</Days></Expiration></Rule>` +
		`<Rule><ID>off</ID>` + off + `<Filter></Filter><Expiration><Days>30</Days></Expiration></Rule>` +
		`<Rule><ID>tagged</ID>` + on + `<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter><Expiration><Days>30</Days></Expiration></Rule>` +
		`<Rule><ID>tagged too</ID>` + on + `<Filter><And><Prefix>logs/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And></Filter><Expiration><Days>30</Days></Expiration></Rule>` +
		`<Rule><ID>old versions</ID>` + on + `<Filter></Filter><NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration></Rule>` +
		`<Rule><ID>uploads</ID>` + on + `<Filter></Filter><AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>` +
		`<Rule><ID>markers</ID>` + on + `<Filter></Filter><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>`})
	st, err := store.Sub(open(t, srv), "logs/orders")
	if err != nil {
		t.Fatal(err)
	}
	found, err := st.(store.ExpiryTeller).Expiries(t.Context(), "")
	want := []store.Expiry{
		{Rule: "all", What: "deletes objects after 30 days"},
		{Rule: "old style", Prefix: "data/", What: "deletes objects from 2027-01-02 on"},
		{Rule: "and", What: "moves objects to GLACIER after a day"},
	}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err := st.(store.ExpiryTeller).Expiries(t.Context(), "lock/"); err != nil || len(found) != 2 {
		t.Errorf("of lock/: %+v, %v", found, err)
	}
}

// A bucket without rules has none, and neither has a store that knows no such thing.
// Who may not read them is told.
func TestExpiriesFails(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{0, "", nil},
		{501, "NotImplemented", nil},
		{403, "AccessDenied", store.ErrDenied},
		{404, "NoSuchBucket", store.ErrNoBucket},
	} {
		srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
			if c.status == 0 || r.Op != s3stub.GetBucketLifecycle {
				return nil
			}
			return &s3stub.Fault{Status: c.status, Code: c.code}
		})
		found, err := st.(store.ExpiryTeller).Expiries(t.Context(), "")
		if len(found) > 0 || !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), "lifecycle") {
			t.Errorf("%s: %+v, %v", c.code, found, err)
		}
	}
}
