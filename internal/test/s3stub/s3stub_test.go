package s3stub

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
)

type client struct {
	t   testing.TB
	srv *Server
}

func begin(t testing.TB, opts *Options) client {
	t.Helper()
	srv := Start(opts)
	t.Cleanup(srv.Close)
	return client{t, srv}
}

type result struct {
	status int
	header http.Header
	body   string
	code   string
}

// try sends a request to a path such as "bucket/key?query"; headers are pairs.
func (c client) try(method, path, body string, headers ...string) (result, error) {
	c.t.Helper()
	req, err := http.NewRequest(method, c.srv.URL()+"/"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := c.srv.HTTPClient().Do(req)
	if err != nil {
		return result{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return result{}, err
	}
	r := result{status: resp.StatusCode, header: resp.Header, body: string(b)}
	var e struct{ Code string }
	if resp.StatusCode >= 400 && len(b) > 0 {
		if err := xml.Unmarshal(b, &e); err != nil {
			c.t.Errorf("%s %s: %v in %q", method, path, err, b)
		}
		r.code = e.Code
	}
	return r, nil
}

func (c client) do(status int, method, path, body string, headers ...string) result {
	c.t.Helper()
	r, err := c.try(method, path, body, headers...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	if r.status != status {
		c.t.Errorf("%s %s: %d %s, want %d", method, path, r.status, r.code, status)
	}
	return r
}

func TestObjects(t *testing.T) {
	for _, tls := range []bool{false, true} {
		c := begin(t, &Options{TLS: tls})
		etag := c.do(200, "PUT", "bucket/a/b%20c%2Bd", "hello").header.Get("ETag")
		if sum := md5.Sum([]byte("hello")); etag != `"`+hex.EncodeToString(sum[:])+`"` {
			t.Errorf("ETag %s is not the quoted MD5", etag)
		}
		got := c.do(200, "GET", "bucket/a/b%20c+d", "")
		if got.body != "hello" || got.header.Get("ETag") != etag || got.header.Get("Content-Length") != "5" {
			t.Errorf("got %+v", got)
		}
		for _, name := range []string{"Date", "Last-Modified"} {
			if _, err := http.ParseTime(got.header.Get(name)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if head := c.do(200, "HEAD", "bucket/a/b%20c+d", ""); head.body != "" || head.header.Get("Content-Length") != "5" {
			t.Errorf("HEAD: %+v", head)
		}
		if body, found := c.srv.Object("bucket", "a/b c+d"); !found || string(body) != "hello" {
			t.Errorf("Object: %q, %v", body, found)
		}
		c.do(204, "DELETE", "bucket/a/b%20c+d", "")
		c.do(204, "DELETE", "bucket/a/b%20c+d", "")
		if r := c.do(404, "GET", "bucket/a/b%20c+d", ""); r.code != "NoSuchKey" {
			t.Errorf("code %q", r.code)
		}
		c.do(404, "HEAD", "bucket/x", "")
		if r := c.do(404, "PUT", "nobucket/x", "y"); r.code != "NoSuchBucket" {
			t.Errorf("code %q", r.code)
		}
		c.do(501, "GET", "bucket/x?acl", "")
		c.do(501, "GET", "", "")
		c.do(501, "PUT", "bucket/y?partNumber=1&uploadId=u", "", "X-Amz-Copy-Source", "bucket/x")
	}
}

func TestConditions(t *testing.T) {
	c := begin(t, nil)
	if r := c.do(404, "PUT", "bucket/k", "x", "If-Match", `"abc"`); r.code != "NoSuchKey" {
		t.Errorf("code %q", r.code)
	}
	one := c.do(200, "PUT", "bucket/k", "one", "If-None-Match", "*").header.Get("ETag")
	if r := c.do(412, "PUT", "bucket/k", "two", "If-None-Match", "*"); r.code != "PreconditionFailed" {
		t.Errorf("code %q", r.code)
	}
	two := c.do(200, "PUT", "bucket/k", "two", "If-Match", one).header.Get("ETag")
	c.do(412, "PUT", "bucket/k", "three", "If-Match", one)
	c.do(200, "PUT", "bucket/k", "three", "If-Match", strings.Trim(two, `"`))
	c.do(304, "GET", "bucket/k", "", "If-None-Match", c.do(200, "GET", "bucket/k", "").header.Get("ETag"))
	c.do(200, "GET", "bucket/k", "", "If-None-Match", one)
}

func TestETagStyles(t *testing.T) {
	c := begin(t, &Options{RandomETags: true, UnquotedMatch: true, ListUnquoted: true})
	one := c.do(200, "PUT", "bucket/k", "same").header.Get("ETag")
	two := c.do(200, "PUT", "bucket/k", "same").header.Get("ETag")
	if one == two {
		t.Error("random ETags are equal")
	}
	c.do(412, "PUT", "bucket/k", "x", "If-Match", two)
	if body := c.do(200, "GET", "bucket?list-type=2", "").body; !strings.Contains(body, "<ETag>"+strings.Trim(two, `"`)+"</ETag>") {
		t.Errorf("listing: %s", body)
	}
	c.do(200, "PUT", "bucket/k", "x", "If-Match", strings.Trim(two, `"`))
}

func TestRange(t *testing.T) {
	c := begin(t, nil)
	c.do(200, "PUT", "bucket/k", "0123456789")
	c.do(200, "PUT", "bucket/empty", "")
	for header, want := range map[string]string{
		"bytes=0-3": "0123 bytes 0-3/10", "bytes=4-": "456789 bytes 4-9/10", "bytes=8-100": "89 bytes 8-9/10", "bytes=-3": "789 bytes 7-9/10", "bytes=-30": "0123456789 bytes 0-9/10",
	} {
		if r := c.do(206, "GET", "bucket/k", "", "Range", header); r.body+" "+r.header.Get("Content-Range") != want {
			t.Errorf("%s: %q %s, want %s", header, r.body, r.header.Get("Content-Range"), want)
		}
	}
	for _, header := range []string{"bytes=10-", "bytes=5-4", "bytes=x-y", "bytes=", "bytes=-0"} {
		c.do(416, "GET", "bucket/k", "", "Range", header)
	}
	c.do(416, "GET", "bucket/empty", "", "Range", "bytes=0-0")
	c.do(416, "GET", "bucket/empty", "", "Range", "bytes=-1")
}

type listing struct {
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key, LastModified, ETag string
		Size                    int
	}
}

func (c client) list(query string) (keys []string, next string) {
	c.t.Helper()
	var l listing
	if err := xml.Unmarshal([]byte(c.do(200, "GET", "bucket?list-type=2&"+query, "").body), &l); err != nil {
		c.t.Fatal(err)
	}
	for _, o := range l.Contents {
		keys = append(keys, o.Key)
	}
	if l.IsTruncated != (l.NextContinuationToken != "") {
		c.t.Errorf("truncated %v, token %q", l.IsTruncated, l.NextContinuationToken)
	}
	return keys, l.NextContinuationToken
}

func TestList(t *testing.T) {
	c := begin(t, nil)
	want := func(query string, want ...string) string {
		t.Helper()
		keys, next := c.list(query)
		if !slices.Equal(keys, want) {
			t.Errorf("%s: %q, want %q", query, keys, want)
		}
		return next
	}
	want("")
	for _, key := range []string{"b/2", "a/1", "b/1", "b/3", "c", "b/4"} {
		c.srv.Put("bucket", key, []byte(key))
	}
	want("", "a/1", "b/1", "b/2", "b/3", "b/4", "c")
	c.do(204, "DELETE", "bucket/b/3", "")
	c.srv.Put("bucket", "b/0", nil)
	want("prefix=b/", "b/0", "b/1", "b/2", "b/4")
	c.srv.Put("bucket", "b/3", nil) // again: it must come once
	want("prefix=b/&start-after=b/1", "b/2", "b/3", "b/4")
	want("prefix=b/&start-after=a", "b/0", "b/1", "b/2", "b/3", "b/4")
	want("prefix=b/&start-after=c")
	token := want("prefix=b/&max-keys=2", "b/0", "b/1")
	c.do(204, "DELETE", "bucket/b/1", "") // the page goes on after it all the same
	token = want("prefix=b/&max-keys=2&continuation-token="+url.QueryEscape(token), "b/2", "b/3")
	want("prefix=b/&max-keys=2&continuation-token="+url.QueryEscape(token), "b/4")
	c.srv.Put("bucket", "o/<&> +%", nil)
	want("prefix=o/", "o/<&> +%")
	want("prefix=o/&encoding-type=url", url.QueryEscape("o/<&> +%"))
	c.do(400, "GET", "bucket?list-type=2&continuation-token=!", "")
	c.do(400, "GET", "bucket?list-type=2&max-keys=x", "")
	for i := range 1001 {
		c.srv.Put("bucket", fmt.Sprintf("many/%04d", i), nil)
	}
	if keys, next := c.list("prefix=many/&max-keys=5000"); len(keys) != 1000 || next == "" {
		t.Errorf("%d keys in a page", len(keys))
	}
}

func TestChecksumsAreChecked(t *testing.T) {
	c := begin(t, nil)
	sum := md5.Sum([]byte("123456789"))
	for _, h := range [][]string{
		{"X-Amz-Checksum-Crc32c", "4waSgw=="}, {"X-Amz-Checksum-Crc32", "y/Q5Jg=="}, {"Content-Md5", base64.StdEncoding.EncodeToString(sum[:])},
	} {
		c.do(200, "PUT", "bucket/k", "123456789", h...)
		if r := c.do(400, "PUT", "bucket/k", "987654321", h...); r.code != "BadDigest" {
			t.Errorf("%s: code %q", h[0], r.code)
		}
	}
	if body, _ := c.srv.Object("bucket", "k"); string(body) != "123456789" {
		t.Errorf("stored %q", body)
	}
	c.do(501, "PUT", "bucket/k", "x", "X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
	c.do(501, "PUT", "bucket/k", "x", "Content-Encoding", "aws-chunked")
	req, err := http.NewRequest(http.MethodPut, c.srv.URL()+"/bucket/k", io.MultiReader(strings.NewReader("no length")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.srv.HTTPClient().Do(req)
	if err != nil || resp.StatusCode != http.StatusLengthRequired {
		t.Errorf("got %v, %v", resp, err)
	}
	resp.Body.Close()
}

func TestForget(t *testing.T) {
	c := begin(t, nil)
	c.do(200, "PUT", "bucket/before", "123456789")
	c.srv.Forget()
	for i := range 3 { // the memory of one serves the next
		c.do(200, "PUT", fmt.Sprint("bucket/", i), "123456789", "If-None-Match", "*", "X-Amz-Checksum-Crc32c", "4waSgw==")
		c.do(400, "PUT", "bucket/wrong", "987654321", "X-Amz-Checksum-Crc32c", "4waSgw==")
	}
	c.do(412, "PUT", "bucket/0", "1234", "If-None-Match", "*")
	for key, want := range map[string]string{"before": "123456789", "0": "", "2": ""} {
		if body := c.do(200, "GET", "bucket/"+key, "").body; body != want {
			t.Errorf("%s is %q", key, body)
		}
	}
}

func TestDeleteObjects(t *testing.T) {
	c := begin(t, nil)
	for _, key := range []string{"a", "b<", "c"} {
		c.srv.Put("bucket", key, nil)
	}
	send := func(status int, body string) result {
		sum := md5.Sum([]byte(body))
		return c.do(status, "POST", "bucket?delete", body, "Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	const doc = "<Delete><Object><Key>a</Key></Object><Object><Key>b&lt;</Key></Object></Delete>"
	c.do(400, "POST", "bucket?delete", doc)
	send(400, "<Delete></Delete>")
	send(400, "nonsense")
	c.srv.KeyErrors(map[string]string{"a": "AccessDenied"})
	if r := send(200, doc); !strings.Contains(r.body, "<Error><Key>a</Key><Code>AccessDenied</Code>") || !strings.Contains(r.body, "<Deleted><Key>b&lt;</Key></Deleted>") {
		t.Errorf("got %s", r.body)
	}
	if keys, _ := c.list(""); !slices.Equal(keys, []string{"a", "c"}) {
		t.Errorf("left: %q", keys)
	}
	if r := send(200, "<Delete><Quiet>true</Quiet><Object><Key>c</Key></Object></Delete>"); strings.Contains(r.body, "Deleted") {
		t.Errorf("got %s", r.body)
	}
}

func TestMultipart(t *testing.T) {
	c := begin(t, nil)
	create := func(key string, headers ...string) string {
		t.Helper()
		var out struct{ UploadId string }
		if err := xml.Unmarshal([]byte(c.do(200, "POST", key+"?uploads", "", headers...).body), &out); err != nil {
			t.Fatal(err)
		}
		return out.UploadId
	}
	big, small := strings.Repeat("x", minPart), "y"
	id := create("bucket/k")
	e1 := c.do(200, "PUT", "bucket/k?partNumber=1&uploadId="+id, big).header.Get("ETag")
	e2 := c.do(200, "PUT", "bucket/k?partNumber=2&uploadId="+id, small).header.Get("ETag")
	part := func(n int, etag string) string {
		return fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", n, etag)
	}
	complete := func(status int, code, doc string, headers ...string) result {
		t.Helper()
		r := c.do(status, "POST", "bucket/k?uploadId="+id, "<CompleteMultipartUpload>"+doc+"</CompleteMultipartUpload>", headers...)
		if r.code != code {
			t.Errorf("%s: code %q, want %q", doc, r.code, code)
		}
		return r
	}
	c.do(404, "PUT", "bucket/other?partNumber=1&uploadId="+id, small)
	c.do(400, "PUT", "bucket/k?partNumber=0&uploadId="+id, small)
	complete(400, "MalformedXML", "")
	complete(400, "InvalidPart", part(3, e2))
	complete(400, "InvalidPart", part(1, e2))
	complete(400, "InvalidPartOrder", part(2, e2)+part(1, e1))
	c.do(200, "PUT", "bucket/k?partNumber=3&uploadId="+id, small)
	complete(400, "EntityTooSmall", part(1, e1)+part(2, e2)+part(3, e2))
	if c.srv.Uploads() != 1 {
		t.Errorf("%d uploads", c.srv.Uploads())
	}
	c.srv.Put("bucket", "k", nil)
	complete(412, "PreconditionFailed", part(1, e1)+part(2, e2), "If-None-Match", "*")
	r := complete(200, "", part(1, e1)+part(2, e2))
	if got := c.do(200, "GET", "bucket/k", ""); got.body != big+small || !strings.Contains(r.body, strings.Trim(got.header.Get("ETag"), `"`)) || !strings.HasSuffix(got.header.Get("ETag"), `-2"`) {
		t.Errorf("%d bytes with %s, completed with %s", len(got.body), got.header.Get("ETag"), r.body)
	}
	complete(404, "NoSuchUpload", part(1, e1))
	c.do(404, "DELETE", "bucket/k?uploadId="+id, "")

	id = create("bucket/k", "X-Amz-Checksum-Algorithm", "CRC32C")
	c.do(400, "PUT", "bucket/k?partNumber=1&uploadId="+id, "123456789")
	c.do(200, "PUT", "bucket/k?partNumber=1&uploadId="+id, "123456789", "X-Amz-Checksum-Crc32c", "4waSgw==")
	c.do(204, "DELETE", "bucket/k?uploadId="+id, "")
	if c.srv.Uploads() != 0 {
		t.Errorf("%d uploads", c.srv.Uploads())
	}
}

func TestFaults(t *testing.T) {
	c := begin(t, nil)
	exists := func(key string) bool { _, found := c.srv.Object("bucket", key); return found }
	rows := map[string]struct {
		fault   Fault
		status  int // 0: no answer
		applied bool
	}{
		"answered": {Fault{Status: 409, Code: "ConditionalRequestConflict"}, 409, false},
		"echo":     {Fault{Status: 503, Code: "SlowDown", RetryAfter: 3, Apply: true}, 503, true},
		"early":    {Fault{Status: 412, Early: true}, 412, false},
		"dropped":  {Fault{Drop: true}, 0, false},
		"lost":     {Lost, 0, true},
	}
	for name, row := range rows {
		c.srv.SetFault(Nth(PutObject, 1, row.fault))
		r, err := c.try("PUT", "bucket/"+name, "x")
		if (err != nil) != (row.status == 0) || r.status != row.status || exists(name) != row.applied || r.code != row.fault.Code {
			t.Errorf("%s: %+v, %v, applied %v", name, r, err, exists(name))
		}
		if row.fault.RetryAfter > 0 && r.header.Get("Retry-After") != "3" {
			t.Errorf("%s: Retry-After %q", name, r.header.Get("Retry-After"))
		}
		c.do(200, "PUT", "bucket/second", "x") // only the first
	}
	c.srv.SetFault(Every(GetObject, Fault{Edit: func(h http.Header) { h.Set("Etag", "odd") }}))
	for range 2 {
		if r := c.do(200, "GET", "bucket/lost", ""); r.header.Get("ETag") != "odd" {
			t.Errorf("ETag %q", r.header.Get("ETag"))
		}
	}
	c.srv.SetFault(nil)
	if r := c.do(200, "GET", "bucket/lost", ""); r.header.Get("ETag") == "odd" {
		t.Error("the fault stays")
	}
}

// A request lands although its client has gone (T9).
func TestT09_LateRequestLands(t *testing.T) {
	c := begin(t, nil)
	release, applied := make(chan struct{}), make(chan struct{})
	c.srv.SetFault(Nth(PutObject, 1, Fault{Wait: release, Applied: func() { close(applied) }}))
	impatient := &http.Client{Timeout: 20 * time.Millisecond, Transport: c.srv.HTTPClient().Transport}
	req, err := http.NewRequest(http.MethodPut, c.srv.URL()+"/bucket/k", strings.NewReader("late"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := impatient.Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("got an answer")
	}
	c.do(404, "GET", "bucket/k", "")
	close(release)
	<-applied
	if r := c.do(200, "GET", "bucket/k", ""); r.body != "late" {
		t.Errorf("got %q", r.body)
	}
}

func TestCountsAndTimings(t *testing.T) {
	c := begin(t, &Options{Record: true, Latency: Fixed(time.Millisecond)})
	for i := range 5 {
		c.do(200, "PUT", fmt.Sprintf("bucket/data/%d", i), "body")
	}
	c.do(200, "GET", "bucket/data/1", "")
	c.do(404, "GET", "bucket/lock/1", "")
	c.list("prefix=data/")
	n := c.srv.Counts()
	if n.Total() != 8 || n.Of(PutObject) != 5 || n.Of(GetObject) != 2 || n.Of(ListObjectsV2) != 1 {
		t.Errorf("got %v", n)
	}
	timings := c.srv.Timings()
	if len(timings) != 8 {
		t.Fatalf("%d timings", len(timings))
	}
	for i, timing := range timings[:5] {
		if timing.Op != PutObject || timing.Key != fmt.Sprintf("data/%d", i) || timing.Answered.Sub(timing.Arrived) < time.Millisecond || i > 0 && timing.Arrived < timings[i-1].Arrived {
			t.Errorf("%+v", timing)
		}
	}
	c.srv.Reset()
	if c.srv.Counts().Total() != 0 || len(c.srv.Timings()) != 0 {
		t.Error("Reset leaves something")
	}
}

// The quantiles of the distribution are those that were asked for, and the same
// seed draws the same row.
func TestS3Latency(t *testing.T) {
	const n = 20000
	draws := func(seed uint64, op Op, size int) []time.Duration {
		draw, row := S3Latency(seed), make([]time.Duration, n)
		for i := range row {
			row[i] = draw(op, size)
		}
		return row
	}
	quantiles := func(op Op, size int) (time.Duration, time.Duration) {
		row := slices.Sorted(slices.Values(draws(7, op, size)))
		return row[n/2], row[n*99/100]
	}
	near := func(got, want time.Duration) bool { return got > want*95/100 && got < want*105/100 }
	if p50, p99 := quantiles(PutObject, 4<<10); !near(p50, 28*time.Millisecond) || !near(p99, 70*time.Millisecond) {
		t.Errorf("PUT of 4 KiB: %v, %v", p50, p99)
	}
	if p50, _ := quantiles(PutObject, 9<<20); !near(p50, 28*time.Millisecond+104*time.Millisecond) {
		t.Errorf("PUT of 9 MiB: %v", p50)
	}
	row := draws(1, GetObject, 0)
	if !slices.Equal(row, draws(1, GetObject, 0)) || slices.Equal(row, draws(2, GetObject, 0)) {
		t.Error("the same seed draws another row, or another seed the same")
	}
}

// Half of the latency passes before the write and half after it.
func TestLatencyIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(&Options{Latency: Fixed(10 * time.Second), Clock: clock.Go()})
		begun := time.Now()
		done := make(chan time.Duration)
		go func() {
			srv.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/bucket/k", strings.NewReader("x")))
			done <- time.Since(begun)
		}()
		time.Sleep(4 * time.Second)
		if _, found := srv.Object("bucket", "k"); found {
			t.Error("applied too early")
		}
		time.Sleep(2 * time.Second)
		if _, found := srv.Object("bucket", "k"); !found {
			t.Error("not applied after half of the time")
		}
		if d := <-done; d != 10*time.Second {
			t.Errorf("answered after %v", d)
		}
	})
}

// Close ends latencies and waits, and returns when all requests are done.
func TestClose(t *testing.T) {
	srv := Start(&Options{Latency: Fixed(time.Hour)})
	arrived := make(chan struct{}, 2)
	n := 0
	var mu sync.Mutex
	srv.SetFault(func(*Request) *Fault {
		mu.Lock()
		defer mu.Unlock()
		arrived <- struct{}{}
		if n++; n == 1 {
			return &Fault{Wait: make(chan struct{})}
		}
		return nil
	})
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			resp, err := srv.HTTPClient().Get(fmt.Sprintf("%s/bucket/%d", srv.URL(), i))
			if err == nil {
				resp.Body.Close()
			}
		})
	}
	<-arrived
	<-arrived
	srv.Close()
	srv.Close()
	wg.Wait()
	if resp, err := srv.HTTPClient().Get(srv.URL()); err == nil {
		resp.Body.Close()
		t.Error("still listening")
	}
}
