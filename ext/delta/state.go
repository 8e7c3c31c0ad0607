package delta

import (
	"fmt"
	"maps"
	"strings"

	"github.com/fencepost/fencepost/fence"
)

// state is one version of a Delta table.
type state struct {
	version  int64 // -1 before the first
	protocol *protocol
	meta     *metaData
	files    map[string]*file // active, by path
	txns     map[string]uint64
	domains  map[string]string
	gone     map[string]*remove // removed not long ago
	sum      sum
	past     past
	// parsed is what parsedOf says, the newest metaData that was read.
	parsed   *Meta
	parsedOf *metaData
}

// file is an active file. It has the log's id as its only tag.
type file struct {
	path      string
	log       string
	partition map[string]*string
	size      int64
	modified  int64
	stats     string
}

func newState() *state {
	return &state{version: -1, files: map[string]*file{}, txns: map[string]uint64{}, domains: map[string]string{}, gone: map[string]*remove{}}
}

func (f *file) add(dataChange bool) *add {
	return &add{
		Path: f.path, Partition: cloneValues(f.partition), Size: f.size, Modified: f.modified, DataChange: dataChange, Stats: f.stats,
		Tags: map[string]string{logTag: f.log},
	}
}

func (f *file) remove(at int64, dataChange bool) *remove {
	return &remove{Path: f.path, Deleted: at, DataChange: dataChange, Extended: true, Partition: cloneValues(f.partition), Size: f.size}
}

func (f *file) sum() sum { return sumOf("add", f.add(false)) }

// file returns the file that an add of this package adds. Others have other tags.
func (a *add) file() (*file, error) {
	log := a.Tags[logTag]
	var id fence.ID
	switch {
	case len(a.Tags) != 1 || id.UnmarshalText([]byte(log)) != nil:
		return nil, fmt.Errorf("file %s was added by another program: it has the tags %v", a.Path, a.Tags)
	case !plainPath(a.Path):
		return nil, fmt.Errorf("file %q lies outside of the table, or its name has characters that no file of a log has", a.Path)
	case a.Size < 0:
		return nil, fmt.Errorf("file %s has %d bytes", a.Path, a.Size)
	}
	return &file{path: a.Path, log: log, partition: a.Partition, size: a.Size, modified: a.Modified, stats: a.Stats}, nil
}

// plainPath reports whether a path is relative, stays below the table's root, is not hidden
// there, and reads the same with and without URL encoding.
func plainPath(path string) bool {
	for _, c := range []byte(path) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-=/", c) >= 0) {
			return false
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part[0] == '.' || part[0] == '_' {
			return false
		}
	}
	return true
}

// after returns the state's proof after some actions of one commit, and changes nothing. The
// error says which action does not fit.
func (s *state) after(actions []action) (proof, error) {
	files, total, err := s.run(actions, false)
	return proof{Files: files, Sum: total}, err
}

// apply applies a commit. After an error the state is useless.
func (s *state) apply(actions []action) error {
	_, total, err := s.run(actions, true)
	if err != nil {
		return err
	}
	s.version, s.sum = s.version+1, total
	return nil
}

func (s *state) run(actions []action, change bool) (files int, total sum, err error) {
	files, total = len(s.files), s.sum
	paths := make(map[string]bool, len(actions))
	for _, a := range actions {
		// guard:delta-path-once. A Delta version adds or removes each file at most once.
		//
		//mutant:replace path != "" && paths[path] => false
		path := a.path()
		if path != "" && paths[path] {
			return 0, sum{}, fmt.Errorf("file %s is added or removed twice in one version", path)
		}
		paths[path] = true
		switch {
		case a.Add != nil:
			err = s.add(a.Add, change, &files, &total)
		case a.Remove != nil:
			err = s.remove(a.Remove, change, &files, &total)
		case a.Txn != nil:
			total = total.plus(sumOfTxn(a.Txn.App, a.Txn.Version))
			if old, ok := s.txns[a.Txn.App]; ok {
				total = total.minus(sumOfTxn(a.Txn.App, old))
			}
			if change {
				s.txns[a.Txn.App] = a.Txn.Version
			}
		case a.Domain != nil:
			total = s.domain(a.Domain, change, total)
		case a.Meta != nil:
			total = total.plus(a.Meta.sum()).minus(s.meta.sum())
			if change {
				s.meta = a.Meta
			}
		case a.Protocol != nil:
			total = total.plus(a.Protocol.sum()).minus(s.protocol.sum())
			if change {
				s.protocol = a.Protocol
			}
		}
		if err != nil {
			return 0, sum{}, err
		}
	}
	return files, total, nil
}

// path returns that of the file that an action is about, or nothing.
func (a *action) path() string {
	switch {
	case a.Add != nil:
		return a.Add.Path
	case a.Remove != nil:
		return a.Remove.Path
	}
	return ""
}

func (s *state) add(a *add, change bool, files *int, total *sum) error {
	f, err := a.file()
	if err != nil {
		return err
	}
	if old := s.files[f.path]; old != nil {
		// guard:delta-other-log. While a file is active, its path belongs to the log that added it.
		if old.log != f.log {
			return fmt.Errorf("file %s is active for log %s, and log %s adds it: two logs write below one name", f.path, old.log, f.log)
		}
		*files--
		*total = total.minus(old.sum())
	}
	*files++
	*total = total.plus(f.sum())
	if change {
		s.files[f.path] = f
		delete(s.gone, f.path)
	}
	return nil
}

func (s *state) remove(r *remove, change bool, files *int, total *sum) error {
	old := s.files[r.Path]
	if old == nil {
		return fmt.Errorf("it removes %q, which is not active", r.Path)
	}
	*files--
	*total = total.minus(old.sum())
	if change {
		delete(s.files, r.Path)
		s.gone[r.Path] = r
	}
	return nil
}

func (s *state) domain(d *domain, change bool, total sum) sum {
	if old, ok := s.domains[d.Domain]; ok {
		total = total.minus(sumOfDomain(d.Domain, old))
	}
	if d.Removed {
		if change {
			delete(s.domains, d.Domain)
		}
		return total
	}
	if change {
		s.domains[d.Domain] = d.Config
	}
	return total.plus(sumOfDomain(d.Domain, d.Config))
}

func sumOfTxn(app string, version uint64) sum { return sumOf("txn", txn{App: app, Version: version}) }
func sumOfDomain(name, config string) sum {
	return sumOf("domain", domain{Domain: name, Config: config})
}

func (m *metaData) sum() sum {
	if m == nil {
		return sum{}
	}
	c := *m
	c.Format.Options, c.Config, c.Partition = maps.Clone(m.Format.Options), maps.Clone(m.Config), append([]string{}, m.Partition...)
	if c.Format.Options == nil {
		c.Format.Options = map[string]string{}
	}
	if c.Config == nil {
		c.Config = map[string]string{}
	}
	return sumOf("metaData", c)
}

func (p *protocol) sum() sum {
	if p == nil {
		return sum{}
	}
	return sumOf("protocol", p)
}

// proof returns that of the state as it is.
func (s *state) proof() proof { return proof{Files: len(s.files), Sum: s.sum} }

// total computes the checksum anew, of a state that was read from a checkpoint.
func (s *state) total() sum {
	t := s.meta.sum().plus(s.protocol.sum())
	for _, f := range s.files {
		t = t.plus(f.sum())
	}
	for app, version := range s.txns {
		t = t.plus(sumOfTxn(app, version))
	}
	for name, config := range s.domains {
		t = t.plus(sumOfDomain(name, config))
	}
	return t
}

// Source is [State.Source].
func (s *state) Source(log fence.ID) (edits uint64, h Hold, known bool) {
	config, ok := s.domains[domainPrefix+log.String()]
	if !ok {
		return 0, Hold{}, false
	}
	_, h, ok = (&domain{Domain: domainPrefix + log.String(), Config: config}).hold()
	return s.txns[log.String()], h, ok
}

// Holds is [State.Holds].
func (s *state) Holds() map[fence.ID]Hold {
	all := map[fence.ID]Hold{}
	for name, config := range s.domains {
		if log, h, ok := (&domain{Domain: name, Config: config}).hold(); ok {
			all[log] = h
		}
	}
	return all
}
