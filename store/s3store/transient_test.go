package s3store_test

import (
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
)

// Codes that stores send with a status that otherwise means no: the body did not
// arrive, or there were too many requests. Nothing is known of the write, and the next
// attempt may be served. The list is written out here on purpose.
func TestTransientAnswersTellNothing(t *testing.T) {
	var rows []answer
	for _, code := range []string{
		"RequestTimeout", "IncompleteBody", "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "SlowDown",
		"Throttling", "ThrottlingException", "RequestThrottled", "TooManyRequests", "RequestLimitExceeded", "BandwidthLimitExceeded", "InternalError",
		"ServiceUnavailable", "OperationAborted",
	} {
		for _, status := range []int{http.StatusBadRequest, http.StatusForbidden} {
			rows = append(rows, answer{op: s3stub.PutObject, cond: store.IfAbsent(), fault: s3stub.Fault{Status: status, Code: code}, result: store.Unknown})
		}
	}
	checkAnswers(t, rows)
}
