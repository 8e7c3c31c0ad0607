package gcsstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

// TestAnswers is the table of what each answer means to each kind of request.
func TestAnswers(t *testing.T) {
	const noBucket = "The specified bucket does not exist."
	unknown, rejected := cloudtest.Unknown, cloudtest.Rejects
	for _, c := range []struct {
		status          int
		reason, message string
		want            cloudtest.Means
	}{
		{412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.", cloudtest.Meaning(store.Refused, store.Refused, store.ErrPrecondition, store.ErrPrecondition)},
		{404, "notFound", "No such object: bucket/k", cloudtest.Meaning(store.Rejected, store.Refused, store.ErrNotFound, store.ErrNoBucket)},
		{404, "notFound", noBucket, rejected(store.ErrNoBucket)},
		{401, "authError", "Invalid Credentials", rejected(store.ErrDenied)},
		{403, "forbidden", "x does not have storage.objects.create access", rejected(store.ErrDenied)},
		{403, "rateLimitExceeded", "", unknown},
		{403, "userRateLimitExceeded", "", unknown},
		{400, "invalid", "Invalid argument.", rejected(store.ErrInvalid)},
		{400, "invalid", `Provided CRC32C "AAAAAA==" doesn't match calculated CRC32C "x".`, unknown},
		{413, "uploadTooLarge", "", rejected(store.ErrInvalid)},
		{405, "methodNotAllowed", "", rejected(store.ErrUnsupported)},
		{501, "notImplemented", "", rejected(store.ErrUnsupported)},
		{408, "requestTimeout", "", unknown},
		{409, "conflict", "", unknown},
		{410, "gone", "", unknown},
		{429, "rateLimitExceeded", "The object exceeded the rate limit for object mutation operations.", unknown},
		{500, "backendError", "", unknown}, {502, "", "", unknown}, {503, "backendError", "", unknown}, {504, "", "", unknown},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.reason), func(t *testing.T) {
			gcs := newStub()
			st := serve(t, gcs)
			answer := says(c.status, apiError(c.status, c.reason, c.message))
			gcs.Faults(func(string, int) *fault { return &answer })
			create := cloudtest.Answered(t, st, "5", c.status, c.reason, c.want)
			if errors.Is(create, store.ErrNoBucket) && !strings.Contains(create.Error(), `create the bucket "bucket"`) {
				t.Errorf("no hint: %v", create)
			}
			if errors.Is(create, store.ErrDenied) && !strings.Contains(create.Error(), "roles/storage.objectUser") {
				t.Errorf("no hint: %v", create)
			}
		})
	}
}

// What a proxy says, in its own words, is classified by its status and shown cut.
func TestAnswerOfAProxy(t *testing.T) {
	gcs := newStub()
	st := serve(t, gcs)
	gcs.On("put", 0, says(502, "<html>"+strings.Repeat("bad gateway ", 1000)))
	_, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	if store.OutcomeOf(err) != store.Unknown || !strings.Contains(err.Error(), "bad gateway") || len(err.Error()) > 400 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

func TestDeleteFails(t *testing.T) {
	gcs := newStub()
	st := serve(t, gcs)
	gcs.On("delete", 0, says(404, apiError(404, "notFound", "The specified bucket does not exist.")))
	if err := st.Delete(t.Context(), "a"); !errors.Is(err, store.ErrNoBucket) {
		t.Errorf("no bucket: %v", err)
	}
	gcs.On("delete", 0, says(503, ""))
	if err := st.Delete(t.Context(), "a"); err == nil {
		t.Error("503: no error")
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	cloudtest.Redirects(t, func(endpoint string) string { return "gs://bucket?anonymous=true&endpoint=" + endpoint })
}
