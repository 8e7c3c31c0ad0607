package s3stub

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// upload is a multipart upload that is neither completed nor aborted.
type upload struct {
	key   string
	begun time.Time
	meta  http.Header
	// algorithm is the checksum that every part must carry, "" for none.
	algorithm string
	parts     map[int]*object
}

// minPart is the smallest size of any part but the last, as on S3.
const minPart = 5 << 20

// begin starts an upload and returns its id.
func (b *bucket) begin(u *upload) string {
	id := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	u.parts = map[int]*object{}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uploads[id] = u
	return id
}

func (s *Server) createUpload(req *Request, b *bucket) *reply {
	id := b.begin(&upload{key: req.Key, begun: s.clock.Wall(), meta: metaOf(req), algorithm: strings.ToUpper(req.HTTP.Header.Get("X-Amz-Checksum-Algorithm"))})
	return document(http.StatusOK, "InitiateMultipartUploadResult", func(w *bytes.Buffer) {
		element(w, "Bucket", req.Bucket)
		element(w, "Key", req.Key)
		element(w, "UploadId", id)
	})
}

func noSuchUpload(req *Request) *reply {
	return fail(req, http.StatusNotFound, "NoSuchUpload", "the upload was completed, aborted or never begun")
}

func (s *Server) uploadPart(req *Request, b *bucket, body []byte) *reply {
	n, err := strconv.Atoi(req.query.Get("partNumber"))
	if err != nil || n < 1 || n > 10000 {
		return fail(req, http.StatusBadRequest, "InvalidArgument", "part numbers are 1 to 10,000")
	}
	part := s.newObject(body)
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.uploads[req.query.Get("uploadId")]
	if u == nil || u.key != req.Key {
		return noSuchUpload(req)
	}
	if got := algorithm(req); got != u.algorithm {
		return fail(req, http.StatusBadRequest, "InvalidRequest",
			fmt.Sprintf("Checksum Type mismatch occurred, expected checksum Type: %q, actual checksum Type: %q", u.algorithm, got))
	}
	u.parts[n] = part
	a := ok(http.StatusOK)
	echoChecksums(req, a)
	a.header["Etag"] = []string{part.quoted()}
	return a
}

func (s *Server) completeUpload(req *Request, b *bucket, body []byte) *reply {
	var in struct {
		Part []struct {
			PartNumber                    int
			ETag                          string
			ChecksumCRC32, ChecksumCRC32C string
		}
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Part) == 0 {
		return fail(req, http.StatusBadRequest, "MalformedXML", "a list of parts is expected")
	}
	id := req.query.Get("uploadId")
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.uploads[id]
	if u == nil || u.key != req.Key {
		return noSuchUpload(req)
	}
	for i := range in.Part[1:] {
		if in.Part[i+1].PartNumber <= in.Part[i].PartNumber {
			return fail(req, http.StatusBadRequest, "InvalidPartOrder", "the parts are not in order")
		}
	}
	var whole, sums []byte
	for i, p := range in.Part {
		part := u.parts[p.PartNumber]
		switch {
		case part == nil || strings.Trim(p.ETag, `"`) != part.etag:
			return fail(req, http.StatusBadRequest, "InvalidPart", "a part is not there")
		case u.algorithm == "CRC32C" && p.ChecksumCRC32C == "" || u.algorithm == "CRC32" && p.ChecksumCRC32 == "":
			return fail(req, http.StatusBadRequest, "InvalidRequest", "The upload was created using a checksum, the complete request must include it for each part")
		case i < len(in.Part)-1 && len(part.body) < minPart:
			return fail(req, http.StatusBadRequest, "EntityTooSmall", "a part is too small")
		}
		whole = append(whole, part.body...)
		sum, _ := hex.DecodeString(part.etag)
		sums = append(sums, sum...)
	}
	o := &object{body: whole, modified: s.clock.Wall(), meta: u.meta}
	sum := md5.Sum(sums)
	o.etag = fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:]), len(in.Part))
	if refused := s.condition(req).refused(req, b.objects[req.Key]); refused != nil {
		return refused
	}
	b.objects[req.Key] = o
	delete(b.uploads, id)
	return document(http.StatusOK, "CompleteMultipartUploadResult", func(w *bytes.Buffer) {
		element(w, "Bucket", req.Bucket)
		element(w, "Key", req.Key)
		etag := o.quoted()
		if s.opts.OddCompletion {
			etag = `"odd"`
		}
		element(w, "ETag", etag)
	})
}

func abortUpload(req *Request, b *bucket) *reply {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := req.query.Get("uploadId")
	if u := b.uploads[id]; u == nil || u.key != req.Key {
		return noSuchUpload(req)
	}
	delete(b.uploads, id)
	return ok(http.StatusNoContent)
}

// listUploads returns uploads in the order of key and id, 1,000 at a time.
func listUploads(req *Request, b *bucket) *reply {
	type entry struct {
		key, id string
		begun   time.Time
	}
	q := req.query
	limit := 1000
	if n, err := strconv.Atoi(q.Get("max-uploads")); err == nil && n > 0 {
		limit = min(limit, n)
	}
	var page []entry
	b.mu.Lock()
	for id, u := range b.uploads {
		after := u.key > q.Get("key-marker") || u.key == q.Get("key-marker") && id > q.Get("upload-id-marker") && q.Has("upload-id-marker")
		if strings.HasPrefix(u.key, q.Get("prefix")) && after {
			page = append(page, entry{u.key, id, u.begun})
		}
	}
	b.mu.Unlock()
	slices.SortFunc(page, func(a, b entry) int { return strings.Compare(a.key+"\x00"+a.id, b.key+"\x00"+b.id) })
	more := len(page) > limit
	page = page[:min(len(page), limit)]
	encode := encoding(req)
	return document(http.StatusOK, "ListMultipartUploadsResult", func(w *bytes.Buffer) {
		element(w, "Bucket", req.Bucket)
		element(w, "Prefix", encode(q.Get("prefix")))
		element(w, "MaxUploads", strconv.Itoa(limit))
		element(w, "IsTruncated", strconv.FormatBool(more))
		element(w, "EncodingType", q.Get("encoding-type"))
		if more {
			element(w, "NextKeyMarker", encode(page[len(page)-1].key))
			element(w, "NextUploadIdMarker", page[len(page)-1].id)
		}
		for _, e := range page {
			w.WriteString("<Upload>")
			element(w, "Key", encode(e.key))
			element(w, "UploadId", e.id)
			element(w, "Initiated", e.begun.UTC().Format("2006-01-02T15:04:05.000Z"))
			w.WriteString("</Upload>")
		}
	})
}

// BeginUpload starts a multipart upload without a request, as if so long ago, for tests.
// The bucket must exist.
func (s *Server) BeginUpload(bucketName, key string, ago time.Duration) {
	s.buckets[bucketName].begin(&upload{key: key, begun: s.clock.Wall().Add(-ago)})
}
