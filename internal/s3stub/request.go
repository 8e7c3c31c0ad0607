package s3stub

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Op is an operation by S3's name for it.
type Op string

// The operations that the stub serves.
const (
	PutObject               Op = "PutObject"
	GetObject               Op = "GetObject"
	HeadObject              Op = "HeadObject"
	DeleteObject            Op = "DeleteObject"
	DeleteObjects           Op = "DeleteObjects"
	ListObjectsV2           Op = "ListObjectsV2"
	CreateMultipartUpload   Op = "CreateMultipartUpload"
	UploadPart              Op = "UploadPart"
	CompleteMultipartUpload Op = "CompleteMultipartUpload"
	AbortMultipartUpload    Op = "AbortMultipartUpload"
	ListMultipartUploads    Op = "ListMultipartUploads"
	CreateBucket            Op = "CreateBucket"
	HeadBucket              Op = "HeadBucket"
	GetBucketLifecycle      Op = "GetBucketLifecycleConfiguration"
	// Unserved is everything else; it is answered 501.
	Unserved Op = "Unserved"
)

// Request is one request as a fault hook sees it.
type Request struct {
	Op          Op
	Bucket, Key string
	// Class is the key's class (Options.Class).
	Class string
	// N counts all requests from 1, OpN those of this Op.
	N, OpN int
	// HTTP is the request itself; its body must be left alone.
	HTTP  *http.Request
	query url.Values
}

// SetQuery changes a parameter before the request is served.
func (r *Request) SetQuery(name, value string) { r.query.Set(name, value) }

func parse(r *http.Request) *Request {
	req := &Request{HTTP: r, query: r.URL.Query()}
	req.Bucket, req.Key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	req.Op = req.op()
	return req
}

func (r *Request) op() Op {
	q, method := r.query, r.HTTP.Method
	if r.Key == "" {
		switch {
		case r.Bucket == "":
		case method == http.MethodGet && q.Get("list-type") == "2" && q.Get("delimiter") == "":
			return ListObjectsV2
		case method == http.MethodGet && q.Has("uploads") && q.Get("delimiter") == "":
			return ListMultipartUploads
		case method == http.MethodGet && q.Has("lifecycle"):
			return GetBucketLifecycle
		case method == http.MethodPost && q.Has("delete"):
			return DeleteObjects
		case method == http.MethodPut && plain(q):
			return CreateBucket
		case method == http.MethodHead:
			return HeadBucket
		}
		return Unserved
	}
	switch {
	case method == http.MethodPost && q.Has("uploads"):
		return CreateMultipartUpload
	case method == http.MethodPost && q.Has("uploadId"):
		return CompleteMultipartUpload
	case method == http.MethodDelete && q.Has("uploadId"):
		return AbortMultipartUpload
	case r.HTTP.Header.Get("X-Amz-Copy-Source") != "":
		return Unserved
	case method == http.MethodPut && q.Has("uploadId"):
		return UploadPart
	case !plain(q):
		return Unserved
	}
	switch method {
	case http.MethodPut:
		return PutObject
	case http.MethodGet:
		return GetObject
	case http.MethodHead:
		return HeadObject
	case http.MethodDelete:
		return DeleteObject
	}
	return Unserved
}

// plain tells whether a query asks for no sub-resource (?acl, ?tagging …).
func plain(q url.Values) bool {
	for k := range q {
		if k != "x-id" {
			return false
		}
	}
	return true
}

// maxBody is the largest body the stub takes in one request.
const maxBody = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readBody reads a request's body in one allocation and checks the checksums
// that it carries.
func readBody(r *http.Request, req *Request) ([]byte, *reply) {
	h := r.Header
	if strings.Contains(h.Get("Content-Encoding"), "aws-chunked") || strings.HasPrefix(h.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return nil, fail(req, http.StatusNotImplemented, "NotImplemented", "aws-chunked bodies are not implemented")
	}
	switch {
	case r.ContentLength > maxBody:
		return nil, fail(req, http.StatusBadRequest, "EntityTooLarge", fmt.Sprintf("the stub takes %d bytes", maxBody))
	case r.ContentLength < 0:
		return nil, fail(req, http.StatusLengthRequired, "MissingContentLength", "a length is required")
	case r.ContentLength == 0:
		return nil, checksums(req, nil)
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fail(req, http.StatusBadRequest, "IncompleteBody", "the body is shorter than its length")
	}
	return body, checksums(req, body)
}

func checksums(req *Request, body []byte) *reply {
	h := req.HTTP.Header
	sum32 := func(sum uint32) string {
		return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
	}
	if req.Op != CompleteMultipartUpload { // there they are of the whole object
		if want := h.Get("X-Amz-Checksum-Crc32c"); want != "" && want != sum32(crc32.Checksum(body, castagnoli)) {
			return fail(req, http.StatusBadRequest, "BadDigest", "the CRC-32C does not match")
		}
		if want := h.Get("X-Amz-Checksum-Crc32"); want != "" && want != sum32(crc32.ChecksumIEEE(body)) {
			return fail(req, http.StatusBadRequest, "BadDigest", "the CRC-32 does not match")
		}
	}
	if want := h.Get("Content-Md5"); want != "" {
		got := md5.Sum(body)
		if sum, err := base64.StdEncoding.DecodeString(want); err != nil || !bytes.Equal(sum, got[:]) {
			return fail(req, http.StatusBadRequest, "BadDigest", "the MD5 does not match")
		}
	}
	return nil
}

// algorithm is the checksum that a request carries, "" for none.
func algorithm(req *Request) string {
	switch h := req.HTTP.Header; {
	case h.Get("X-Amz-Checksum-Crc32c") != "":
		return "CRC32C"
	case h.Get("X-Amz-Checksum-Crc32") != "":
		return "CRC32"
	}
	return ""
}

// echoChecksums tells the client the checksums that were stored, as S3 does.
func echoChecksums(req *Request, a *reply) {
	for _, name := range []string{"X-Amz-Checksum-Crc32c", "X-Amz-Checksum-Crc32"} {
		if v := req.HTTP.Header.Get(name); v != "" {
			a.header.Set(name, v)
		}
	}
}
