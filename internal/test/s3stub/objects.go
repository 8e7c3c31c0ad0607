package s3stub

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// apply applies a request.
func (s *Server) apply(req *Request, body []byte) *reply {
	b := s.buckets[req.Bucket]
	if b == nil && req.Op != Unserved {
		return fail(req, http.StatusNotFound, "NoSuchBucket", "the bucket does not exist")
	}
	switch req.Op {
	case PutObject:
		return s.put(req, b, body)
	case GetObject, HeadObject:
		return s.get(req, b)
	case DeleteObject:
		b.delete(req.Key)
		return ok(http.StatusNoContent)
	case DeleteObjects:
		return s.deleteObjects(req, b, body)
	case ListObjectsV2:
		return s.list(req, b)
	case CreateMultipartUpload:
		return s.createUpload(req, b)
	case UploadPart:
		return s.uploadPart(req, b, body)
	case CompleteMultipartUpload:
		return s.completeUpload(req, b, body)
	case AbortMultipartUpload:
		return abortUpload(req, b)
	case ListMultipartUploads:
		return listUploads(req, b)
	case GetBucketLifecycle:
		if s.opts.Lifecycle == "" {
			return fail(req, http.StatusNotFound, "NoSuchLifecycleConfiguration", "the bucket has no rules")
		}
		return document(http.StatusOK, "LifecycleConfiguration", func(w *bytes.Buffer) { w.WriteString(s.opts.Lifecycle) })
	}
	return fail(req, http.StatusNotImplemented, "NotImplemented", "the stub does not do this")
}

func (s *Server) condition(req *Request) condition {
	h := req.HTTP.Header
	return condition{ifMatch: h.Get("If-Match"), ifNoneMatch: h.Get("If-None-Match"), unquotedOnly: s.opts.UnquotedMatch}
}

func noSuchKey(req *Request) *reply {
	return fail(req, http.StatusNotFound, "NoSuchKey", "the key does not exist")
}

func (s *Server) put(req *Request, b *bucket, body []byte) *reply {
	o := s.newObject(body)
	o.meta = metaOf(req)
	if s.bodies.forgets(req.Op) {
		o.body = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if refused := s.condition(req).refused(req, b.objects[req.Key]); refused != nil {
		return refused
	}
	b.objects[req.Key] = o
	a := ok(http.StatusOK)
	a.header["Etag"] = []string{o.quoted()}
	echoChecksums(req, a)
	return a
}

func (s *Server) get(req *Request, b *bucket) *reply {
	o := b.get(req.Key)
	if o == nil {
		return noSuchKey(req)
	}
	h := req.HTTP.Header
	a := ok(http.StatusOK)
	maps.Copy(a.header, o.meta)
	a.header["Etag"] = []string{o.quoted()}
	a.header["Last-Modified"] = []string{o.modified.UTC().Format(http.TimeFormat)}
	a.header["Accept-Ranges"] = []string{"bytes"}
	if m := h.Get("If-None-Match"); m != "" && (m == "*" || m == o.etag || m == o.quoted()) {
		a.status = http.StatusNotModified
		return a
	}
	a.body = o.body
	if r := h.Get("Range"); r != "" {
		first, last, valid := parseRange(r, int64(len(o.body)))
		if !valid {
			return fail(req, http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "the range is not within the object")
		}
		a.status = http.StatusPartialContent
		a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(o.body)))
		a.body = o.body[first : last+1]
	}
	a.header.Set("Content-Type", "application/octet-stream")
	a.header.Set("Content-Length", strconv.Itoa(len(a.body))) // a HEAD has a length and no body
	return a
}

// parseRange parses one range: bytes=a-b, bytes=a- or bytes=-n.
func parseRange(header string, size int64) (first, last int64, valid bool) {
	from, to, cut := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	if !cut {
		return 0, 0, false
	}
	if from == "" {
		n, err := strconv.ParseInt(to, 10, 64)
		return max(size-n, 0), size - 1, err == nil && n > 0 && size > 0
	}
	first, err := strconv.ParseInt(from, 10, 64)
	last = size - 1
	if err == nil && to != "" {
		last, err = strconv.ParseInt(to, 10, 64)
		last = min(last, size-1)
	}
	return first, last, err == nil && first < size && first <= last
}

func (s *Server) deleteObjects(req *Request, b *bucket, body []byte) *reply {
	h := req.HTTP.Header
	if h.Get("Content-Md5") == "" && h.Get("X-Amz-Checksum-Crc32") == "" && h.Get("X-Amz-Checksum-Crc32c") == "" {
		return fail(req, http.StatusBadRequest, "InvalidRequest", "Missing required header for this request: Content-MD5 OR x-amz-checksum-*")
	}
	var in struct {
		Quiet  bool
		Object []struct{ Key string }
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Object) == 0 || len(in.Object) > 1000 {
		return fail(req, http.StatusBadRequest, "MalformedXML", "1 to 1,000 keys are expected")
	}
	return document(http.StatusOK, "DeleteResult", func(w *bytes.Buffer) {
		for _, o := range in.Object {
			code := ""
			if codes := s.keyErrors.Load(); codes != nil {
				code = (*codes)[o.Key]
			}
			if code == "" {
				b.delete(o.Key)
			}
			switch {
			case code != "":
				w.WriteString("<Error>")
				element(w, "Key", o.Key)
				element(w, "Code", code)
				element(w, "Message", "a fault of the stub")
				w.WriteString("</Error>")
			case !in.Quiet:
				w.WriteString("<Deleted>")
				element(w, "Key", o.Key)
				w.WriteString("</Deleted>")
			}
		}
	})
}

// encoding returns how the keys in a listing are encoded.
func encoding(req *Request) func(string) string {
	if req.query.Get("encoding-type") == "url" {
		return url.QueryEscape
	}
	return func(s string) string { return s }
}

func (s *Server) list(req *Request, b *bucket) *reply {
	q := req.query
	limit := 1000
	if v := q.Get("max-keys"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return fail(req, http.StatusBadRequest, "InvalidArgument", "max-keys is not a number")
		}
		limit = min(limit, n)
	}
	after := q.Get("start-after")
	if token := q.Get("continuation-token"); token != "" {
		last, err := base64.URLEncoding.DecodeString(token)
		if err != nil {
			return fail(req, http.StatusBadRequest, "InvalidArgument", "the continuation token is not valid")
		}
		after = string(last)
	}
	encode := encoding(req)
	page, more := b.list(q.Get("prefix"), after, limit)
	more = more && len(page) > 0 // max-keys 0
	return document(http.StatusOK, "ListBucketResult", func(w *bytes.Buffer) {
		element(w, "Name", req.Bucket)
		element(w, "Prefix", encode(q.Get("prefix")))
		element(w, "MaxKeys", strconv.Itoa(limit))
		element(w, "KeyCount", strconv.Itoa(len(page)))
		element(w, "IsTruncated", strconv.FormatBool(more))
		element(w, "EncodingType", q.Get("encoding-type"))
		if more {
			element(w, "NextContinuationToken", base64.URLEncoding.EncodeToString([]byte(page[len(page)-1].key)))
		}
		for _, e := range page {
			etag := e.quoted()
			if s.opts.ListUnquoted {
				etag = e.etag
			}
			w.WriteString("<Contents>")
			element(w, "Key", encode(e.key))
			element(w, "LastModified", e.modified.UTC().Format("2006-01-02T15:04:05.000Z"))
			element(w, "ETag", etag)
			element(w, "Size", strconv.Itoa(len(e.body)))
			element(w, "StorageClass", "STANDARD")
			w.WriteString("</Contents>")
		}
	})
}

// Age moves the Last-Modified of an object into the past, for tests. The object must exist.
func (s *Server) Age(bucketName, key string, d time.Duration) {
	b := s.buckets[bucketName]
	b.mu.Lock()
	defer b.mu.Unlock()
	older := *b.objects[key]
	older.modified = older.modified.Add(-d)
	b.objects[key] = &older
}
