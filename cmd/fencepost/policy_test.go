package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

const policyPrefix = "team/orders"

// policed is a store that does what policies allow, and nothing else, as S3 reads
// them: a Deny wins, without an Allow nothing goes.
type policed struct {
	store.Store
	identity, bucket *policy // bucket may be nil
	prefix           string  // policyPrefix if empty

	mu     sync.Mutex
	denied []string
}

// policy is a document of IAM.
type policy struct {
	Version   string
	Statement []statement
}

type statement struct {
	Sid       string
	Effect    string
	Principal string
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string
}

// onPage returns the JSON below a heading of docs/policies.md.
func onPage(t testing.TB, heading string) *policy {
	t.Helper()
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(page), "# "+heading+"\n")
	_, part, found := strings.Cut(part, "```json\n")
	part, _, _ = strings.Cut(part, "\n```")
	var p policy
	d := json.NewDecoder(strings.NewReader(strings.ReplaceAll(part, "bucket/orders", "bucket/"+policyPrefix)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || !ok || !found {
		t.Fatalf("docs/policies.md, %s: %v", heading, err)
	}
	for i, s := range p.Statement {
		for _, prefixes := range s.Condition["StringLike"] {
			for k := range prefixes {
				p.Statement[i].Condition["StringLike"]["s3:prefix"][k] = strings.Replace(prefixes[k], "orders/", policyPrefix+"/", 1)
			}
		}
	}
	return &p
}

// policyFor is a policy of the page; of a group, or of a log with files apart, as the page says to make it.
func policyFor(t testing.TB, role string, kinds ...string) *policy {
	t.Helper()
	p := onPage(t, role)
	if slices.Contains(kinds, "files") {
		for i := range p.Statement {
			s := &p.Statement[i]
			s.Resource = slices.DeleteFunc(s.Resource, func(r string) bool { return strings.HasPrefix(r, at("file/")) })
		}
		p.Statement = slices.DeleteFunc(p.Statement, func(s statement) bool { return len(s.Resource) == 0 })
		own, all := role+"-files", 99
		if role == "reader" {
			own, all = "writer-files", 2
		}
		more := onPage(t, own).Statement
		p.Statement = append(p.Statement, more[:min(all, len(more))]...)
	}
	if !slices.Contains(kinds, "group") || role == "doctor" || role == "bucket" {
		return p
	}
	group := &policy{}
	if slices.Contains([]string{"writer", "candidate", "compactor"}, role) {
		group = onPage(t, "group")
	}
	for _, s := range group.Statement {
		for i := range s.Resource {
			if role == "compactor" {
				s.Resource[i] = strings.Replace(s.Resource[i], at(""), at("compactors/"), 1)
			}
		}
	}
	for _, s := range p.Statement {
		if own := s.Sid != "List" && s.Sid != "Read"; own && (role == "candidate" || s.Sid == "Elect") {
			continue
		} else if own {
			for i := range s.Resource {
				s.Resource[i] = strings.Replace(s.Resource[i], at(""), at("partition/??????/"), 1)
			}
		}
		group.Statement = append(group.Statement, s)
	}
	return group
}

// at is how a policy names what is at a key.
func at(key string) string { return "arn:aws:s3:::bucket/" + policyPrefix + "/" + key }

func newPoliced(t testing.TB, st store.Store, role string, kinds ...string) *policed {
	t.Helper()
	return &policed{Store: st, identity: policyFor(t, role, kinds...), bucket: policyFor(t, "bucket")}
}

// matches compares as IAM does: a star stands for any characters, and a question mark for one.
func matches(pattern, v string) bool {
	for pattern != "" && pattern[0] != '*' {
		if v == "" || pattern[0] != '?' && pattern[0] != v[0] {
			return false
		}
		pattern, v = pattern[1:], v[1:]
	}
	if pattern == "" {
		return v == ""
	}
	return matches(pattern[1:], v) || v != "" && matches(pattern, v[1:])
}

// applies reports whether a statement is about a request.
func (s statement) applies(action, resource string, keys map[string]string) bool {
	like := func(patterns []string, v string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, v) })
	}
	if !like(s.Action, action) || !like(s.Resource, resource) {
		return false
	}
	for op, conditions := range s.Condition {
		for key, want := range conditions {
			v, there := keys[key]
			var ok bool
			switch op {
			case "Null":
				ok = (want[0] == "true") == !there
			case "Bool":
				ok = there && v == want[0]
			case "StringLike":
				ok = there && like(want, v)
			default:
				panic("a condition " + op + ", which nobody here knows")
			}
			if !ok {
				return false
			}
		}
	}
	return true
}

func (p *policed) check(op, key, action, resource string, keys map[string]string) error {
	allowed := false
	for _, pol := range []*policy{p.identity, p.bucket} {
		if pol == nil {
			continue
		}
		for _, s := range pol.Statement {
			if !s.applies(action, resource, keys) {
				continue
			}
			if s.Effect == "Deny" {
				return p.deny(op, key, action)
			}
			allowed = true
		}
	}
	if !allowed {
		return p.deny(op, key, action)
	}
	return nil
}

func (p *policed) deny(op, key, action string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = append(p.denied, action+" "+key)
	return &store.Error{Op: op, Key: key, Kind: store.ErrDenied, Status: 403, Code: "AccessDenied"}
}

func (p *policed) object(key string) string {
	return "arn:aws:s3:::bucket/" + path.Join(cmp.Or(p.prefix, policyPrefix), key)
}

func (p *policed) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := p.check("get", key, "s3:GetObject", p.object(key), nil); err != nil {
		return nil, err
	}
	return p.Store.Get(ctx, key, opts)
}

func (p *policed) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	keys := map[string]string{"s3:ObjectCreationOperation": "true"}
	if opts.Condition() == store.IfAbsent() {
		keys["s3:if-none-match"] = "*"
	}
	if v, ok := opts.Condition().Match(); ok {
		keys["s3:if-match"] = string(v)
	}
	if err := p.check("put", key, "s3:PutObject", p.object(key), keys); err != nil {
		return store.Info{}, err
	}
	return p.Store.Put(ctx, key, body, opts)
}

// Upload is a multipart upload: begun and sent in parts without a condition, and
// completed with one.
func (p *policed) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	last := map[string]string{"s3:ObjectCreationOperation": "true"}
	if opts != nil && opts.Create {
		last["s3:if-none-match"] = "*"
	}
	for _, keys := range []map[string]string{{"s3:ObjectCreationOperation": "false"}, last} {
		if err := p.check("upload", key, "s3:PutObject", p.object(key), keys); err != nil {
			return store.Info{}, err
		}
	}
	if err := p.check("upload", key, "s3:AbortMultipartUpload", p.object(key), nil); err != nil {
		return store.Info{}, err
	}
	return p.Store.Upload(ctx, key, body, opts)
}

func (p *policed) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	full := cmp.Or(p.prefix, policyPrefix) + "/" + prefix
	if err := p.check("list", prefix, "s3:ListBucket", "arn:aws:s3:::bucket", map[string]string{"s3:prefix": full}); err != nil {
		return func(yield func(store.Info, error) bool) { yield(store.Info{}, err) }
	}
	return p.Store.List(ctx, prefix, opts)
}

func (p *policed) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := p.check("delete", key, "s3:DeleteObject", p.object(key), nil); err != nil {
			return err
		}
	}
	return p.Store.Delete(ctx, keys...)
}

// day is a clock that can be set ahead.
type day struct {
	clock.Clock
	ahead time.Duration
}

func (d *day) Wall() time.Time { return d.Clock.Wall().Add(d.ahead) }

var quickProbe = &manifest.InitOptions{Grace: -1, Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}}

// work is what each role does in practice, in this order.
var work = []struct {
	role string
	do   func(ctx context.Context, st store.Store) error
}{
	{"writer", func(ctx context.Context, st store.Store) error {
		// It makes the log, too.
		opts := &fencepost.Options{Writer: &writer.Options{Init: quickProbe}}
		return fencepost.Run(ctx, st, opts, func(ctx context.Context, w *fencepost.Session) error {
			if _, err := w.Append(ctx, [][]byte{[]byte("a")}, writer.Cursor([]byte("c"))); err != nil {
				return err
			}
			f, err := w.CreateFile(ctx, ".parquet", 0)
			if err != nil {
				return err
			}
			if _, err := f.Write([]byte("rows")); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			return w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f.File()}})
		})
	}},
	{"candidate", func(ctx context.Context, st store.Store) error {
		e, err := leader.New(st, fencepost.LockPrefix, nil)
		if err != nil {
			return err
		}
		return e.Run(ctx, func(context.Context, *leader.Term) error { return nil })
	}},
	{"writer", func(ctx context.Context, st store.Store) error {
		return fencepost.Run(ctx, st, nil, func(ctx context.Context, w *fencepost.Session) error {
			_, err := w.Append(ctx, [][]byte{[]byte("b")})
			return err
		})
	}},
	{"reader", func(ctx context.Context, st store.Store) error {
		r, err := reader.Open(ctx, st, nil)
		if err != nil {
			return err
		}
		s, err := r.Snapshot(ctx, nil)
		if err != nil {
			return err
		}
		for _, err := range s.Records(ctx, 0) {
			if err != nil {
				return err
			}
		}
		return s.Close(ctx)
	}},
	{"compactor", func(ctx context.Context, st store.Store) error {
		log, err := state.Open(ctx, st, nil)
		if err != nil {
			return err
		}
		// Its own eyes only: somebody has left a pin that lapses.
		if _, err := log.Pins(ctx); err != nil {
			return err
		}
		c, err := compactor.New(st, &compactor.Options{Leader: &leader.Options{Prune: leader.PruneOptions{Keep: 1, For: time.Nanosecond}}})
		if err != nil {
			return err
		}
		for range 2 {
			if _, err := c.Once(ctx); err != nil {
				return err
			}
		}
		return c.Truncate(ctx, 1)
	}},
}

// What a role does in practice its policy allows, with the bucket's in force, and
// nothing of it is refused.
func TestPolicyAllows(t *testing.T) {
	now := &day{Clock: clock.System()}
	st := memstore.New(&memstore.Options{Clock: now})
	// A probe that died has left it, and a day later it is swept.
	left := "tmp/" + uuid.NewString()
	if _, err := st.Put(t.Context(), left, []byte("x"), &store.PutOptions{If: store.IfAbsent()}); err != nil {
		t.Fatal(err)
	}
	for _, w := range work {
		if w.role == "compactor" {
			now.ahead = 25 * time.Hour
		}
		p := newPoliced(t, st, w.role)
		if err := w.do(t.Context(), p); err != nil {
			t.Errorf("%s: %v", w.role, err)
		}
		if len(p.denied) > 0 {
			t.Errorf("%s was denied %q", w.role, p.denied)
		}
	}
	if _, err := st.Get(t.Context(), left, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%s is still there: %v", left, err)
	}
}

// What a role has no business with is refused.
func TestPolicyDenies(t *testing.T) {
	const n = "00000000000000000001"
	id := uuid.NewString()
	keys := []string{
		layout.FormatKey, "lock/" + n + ".json", "compactor-lock/" + n + ".json", layout.DataKey(fence.Position{Epoch: 1, Seq: 1}), layout.ManifestKey(1),
		"segment/compactor/" + n + "/" + id, "segment/writer/" + n + "/" + id, "list/compactor/" + n + "/" + id, "pin/" + id + ".json", "file/" + n + "/" + id, "tmp/" + id, "else",
		layout.DeltaCommitKey(1), layout.DeltaHintKey, "consumer/c.json", "group/group.json", "partition/000001/data/" + n + "/" + n,
	}
	creates := map[string]string{
		"writer": "format lock data manifest file/0000 tmp", "candidate": "lock tmp", "reader": "pin consumer",
		"compactor": "compactor-lock manifest segment/compactor list/compactor pin", "publisher": "pin file/_delta_log", "doctor": "tmp",
	}
	deletes := map[string]string{
		"writer": "manifest tmp", "candidate": "lock tmp", "reader": "pin", "publisher": "pin file/_delta_log", "doctor": "tmp",
		"compactor": "lock compactor-lock data manifest segment/compactor segment/writer list/compactor pin file/0000 tmp",
	}
	may := func(list, key string) bool {
		return slices.ContainsFunc(strings.Fields(list), func(s string) bool {
			return strings.HasPrefix(key, s+"/") || strings.HasPrefix(key, s+".") || strings.HasSuffix(s, "0000") && strings.HasPrefix(key, s)
		})
	}
	for role := range creates {
		for _, key := range keys {
			p := newPoliced(t, memstore.New(nil), role)
			if _, err := p.Put(t.Context(), key, []byte("x"), &store.PutOptions{If: store.IfAbsent()}); errors.Is(err, store.ErrDenied) == may(creates[role], key) {
				t.Errorf("%s creates %s: %v", role, key, err)
			}
			if err := p.Delete(t.Context(), key); errors.Is(err, store.ErrDenied) == may(deletes[role], key) {
				t.Errorf("%s deletes %s: %v", role, key, err)
			}
			// Nobody overwrites, whoever's policy allows to put.
			if strings.HasPrefix(key, "tmp/") {
				continue // the probe tries things out
			}
			if _, err := p.Put(t.Context(), key, []byte("x"), nil); !errors.Is(err, store.ErrDenied) {
				t.Errorf("%s overwrites %s: %v", role, key, err)
			}
			if _, err := p.Upload(t.Context(), key, strings.NewReader("x"), nil); !errors.Is(err, store.ErrDenied) {
				t.Errorf("%s uploads over %s: %v", role, key, err)
			}
		}
		p := newPoliced(t, memstore.New(nil), role)
		// Beside the log.
		if err := p.check("get", "x", "s3:GetObject", "arn:aws:s3:::bucket/team/orders2/x", nil); err == nil {
			t.Errorf("%s reads another log", role)
		}
		if err := p.check("list", "x", "s3:ListBucket", "arn:aws:s3:::bucket", map[string]string{"s3:prefix": "team/"}); err == nil {
			t.Errorf("%s lists another log", role)
		}
	}
}

// An engine sees files and the published table, and nothing else of the log. A consumer's name may be all that a reader moves.
func TestNarrowPolicies(t *testing.T) {
	st := memstore.New(nil)
	for _, key := range []string{"data/1/1", "lock/1.json", layout.FormatKey, "file/1/x.parquet", layout.DeltaCommitKey(1)} {
		if _, err := st.Put(t.Context(), key, []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
		p := newPoliced(t, st, "engine")
		_, err := p.Get(t.Context(), key, nil)
		if file := strings.HasPrefix(key, layout.FilePrefix); errors.Is(err, store.ErrDenied) == file {
			t.Errorf("an engine reads %s: %v", key, err)
		}
		for _, prefix := range []string{"", "data/", layout.FilePrefix} {
			var err error
			for _, err = range p.List(t.Context(), prefix, nil) {
				break
			}
			if errors.Is(err, store.ErrDenied) == (prefix == layout.FilePrefix) {
				t.Errorf("an engine lists %q: %v", prefix, err)
			}
		}
	}
	r := newPoliced(t, st, "reader")
	for _, s := range r.identity.Statement {
		for i := range s.Resource {
			s.Resource[i] = strings.Replace(s.Resource[i], "consumer/*", "consumer/mine.json", 1)
		}
	}
	for name, own := range map[string]bool{"mine": true, "mine2": false, "other": false} {
		key, _ := layout.ConsumerKey(name)
		if _, err := r.Put(t.Context(), key, nil, &store.PutOptions{If: store.IfAbsent()}); errors.Is(err, store.ErrDenied) == own {
			t.Errorf("the consumer mine moves %s: %v", name, err)
		}
	}
}

// Without the bucket's policy an overwrite would go through: it is what refuses it.
func TestPolicyOfTheBucket(t *testing.T) {
	p := newPoliced(t, memstore.New(nil), "writer")
	p.bucket = nil
	if _, err := p.Put(t.Context(), "lock/x.json", []byte("x"), nil); err != nil {
		t.Error(err)
	}
	// It refuses also those who may do all the rest, in groups and in the logs of their partitions too.
	anything := &policy{Statement: []statement{{Effect: "Allow", Action: []string{"s3:*"}, Resource: []string{"*"}}}}
	admin := &policed{Store: memstore.New(nil), identity: anything, bucket: policyFor(t, "bucket")}
	for key, free := range map[string]bool{
		"format.json": false, "data/1/1": false, "file/_delta_log/1.json": false, "file/0/x": false, "tmp/x": true,
		"partition/000007/format.json": false, "partition/099999/data/1/1": false, "partition/000007/lock/1.json": false, "partition/000007/tmp/x": true,
		group.FormatKey: false, "group/assign/00000000000000000001": false, "group/member/x.json": false, "group/head.json": true,
		"compactors/" + group.FormatKey: false, "compactors/" + "group/ack/x": false, "compactors/" + "group/head.json": true,
	} {
		if _, err := admin.Put(t.Context(), key, []byte("x"), nil); (err == nil) != free {
			t.Errorf("an unconditional write of %s: %v", key, err)
		}
		if _, err := admin.Put(t.Context(), key, []byte("y"), &store.PutOptions{If: store.IfAbsent()}); errors.Is(err, store.ErrDenied) {
			t.Errorf("a creation of %s: %v", key, err)
		}
	}
}

// IAM wants each name of a statement once, of letters and digits; something in each list; and a managed policy not longer
// than the page says.
func TestPolicyIsValid(t *testing.T) {
	for _, role := range []string{"writer", "candidate", "compactor", "reader", "engine", "publisher", "doctor", "bucket"} {
		for _, kinds := range [][]string{nil, {"group"}, {"files"}} {
			if (role == "bucket" || role == "candidate" || role == "doctor" || role == "engine") && slices.Contains(kinds, "files") {
				continue
			}
			seen := map[string]bool{}
			p := policyFor(t, role, kinds...)
			for _, s := range p.Statement {
				if seen[s.Sid] || strings.Trim(strings.ToLower(s.Sid), "abcdefghijklmnopqrstuvwxyz") != "" || len(s.Action) == 0 || len(s.Resource) == 0 {
					t.Errorf("%s %q: %+v", role, kinds, s)
				}
				seen[s.Sid] = true
			}
			if b, err := json.Marshal(p); err != nil || kinds == nil && role != "bucket" && len(b) > 6144 {
				t.Errorf("%s has %d characters, %v", role, len(b), err)
			}
		}
	}
}
