package s3stub

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"hash"
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
	GetBucketLifecycle      Op = "GetBucketLifecycleConfiguration"
	// Unserved is everything else. The answer is 501.
	Unserved Op = "Unserved"
)

// Request is one request as a fault hook sees it.
type Request struct {
	Op          Op
	Bucket, Key string
	// Class is the first part of the key.
	Class string
	// HTTP is the request itself. A hook must not read its body.
	HTTP  *http.Request
	query url.Values
}

// SetQuery changes a parameter before the request is served.
func (r *Request) SetQuery(name, value string) { r.query.Set(name, value) }

func parse(r *http.Request) *Request {
	req := &Request{HTTP: r, query: r.URL.Query()}
	req.Bucket, req.Key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	req.Class, _, _ = strings.Cut(req.Key, "/")
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

// plain reports whether a query asks for no sub-resource (?acl, ?tagging …).
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
func (s *Server) readBody(r *http.Request, req *Request) ([]byte, *reply) {
	h := r.Header
	if strings.Contains(h.Get("Content-Encoding"), "aws-chunked") || strings.HasPrefix(h.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return nil, fail(req, http.StatusNotImplemented, "NotImplemented", "aws-chunked bodies are not implemented")
	}
	switch {
	case r.ContentLength > maxBody:
		return nil, fail(req, http.StatusBadRequest, "EntityTooLarge", fmt.Sprintf("the stub takes %d bytes", maxBody))
	case r.ContentLength < 0:
		return nil, fail(req, http.StatusLengthRequired, "MissingContentLength", "a length is required")
	}
	sums := sumsOf(req)
	body := s.bodies.take(req.Op, int(r.ContentLength))
	// Sum the bytes as they arrive, while they are in the processor's cache. Later, the sum
	// of a large body would take three times as long, and not equally long for each kind.
	if _, err := io.ReadFull(io.TeeReader(r.Body, sums), body); err != nil {
		return body, fail(req, http.StatusBadRequest, "IncompleteBody", "the body is shorter than its length")
	}
	if wrong := sums.wrong(); wrong != "" {
		return body, fail(req, http.StatusBadRequest, "BadDigest", "the "+wrong+" does not match")
	}
	return body, nil
}

// sum is a checksum that a request carries.
type sum struct {
	name, want string
	hash.Hash
}

// sums are the checksums of a request. Its body is written to them.
type sums []sum

func sumsOf(req *Request) (all sums) {
	add := func(header, name string, h func() hash.Hash) {
		if want := req.HTTP.Header.Get(header); want != "" {
			all = append(all, sum{name, want, h()})
		}
	}
	if req.Op != CompleteMultipartUpload { // its sums are those of the whole object
		add("X-Amz-Checksum-Crc32c", "CRC-32C", func() hash.Hash { return crc32.New(castagnoli) })
		add("X-Amz-Checksum-Crc32", "CRC-32", func() hash.Hash { return crc32.NewIEEE() })
	}
	add("Content-Md5", "MD5", md5.New)
	return all
}

func (all sums) Write(b []byte) (int, error) {
	for _, s := range all {
		_, _ = s.Hash.Write(b) // never fails
	}
	return len(b), nil
}

// wrong returns the name of a checksum that does not match, if there is one.
func (all sums) wrong() string {
	for _, s := range all {
		if base64.StdEncoding.EncodeToString(s.Sum(nil)) != s.want {
			return s.name
		}
	}
	return ""
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

// echoChecksums returns the stored checksums to the client, as S3 does.
func echoChecksums(req *Request, a *reply) {
	for _, name := range []string{"X-Amz-Checksum-Crc32c", "X-Amz-Checksum-Crc32"} {
		if v := req.HTTP.Header.Get(name); v != "" {
			a.header.Set(name, v)
		}
	}
}
