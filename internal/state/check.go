package state

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
)

// check refuses a manifest that no correct program publishes. Compactors delete by what a
// manifest says, so nothing in it may contradict the rest.
func (m *Manifest) check(key string, f manifest.Format) error {
	if m.Log != f.Log {
		return document.Corrupt(key, "it belongs to log %s, this is log %s", m.Log, f.Log)
	}
	if v, ok := layout.ParseManifestKey(key); !ok || v != m.Version {
		return document.Corrupt(key, "it says that it is version %d", m.Version)
	}
	if m.PruneMark >= m.Version || m.Forgotten > m.PruneMark {
		return document.Corrupt(key, "the prune mark %d is not below the version %d, or %d is forgotten", m.PruneMark, m.Version, m.Forgotten)
	}
	if err := m.checkPoints(key, f); err != nil {
		return err
	}
	named := names{}
	for _, check := range []func(names) error{m.checkSegments, m.checkSeals, m.checkTable, m.checkDropped} {
		if err := check(named); err != nil {
			return document.Corrupt(key, "%v", err)
		}
	}
	return nil
}

func (m *Manifest) checkPoints(key string, f manifest.Format) error {
	for _, p := range []*frame.Point{&m.Floor, m.Hint} {
		switch {
		case p == nil:
		case !p.Valid():
			return document.Corrupt(key, "a point at %v", p.Position)
		case int64(len(p.Cursor)) > f.Limits.Cursor:
			return document.Corrupt(key, "the point %v has a cursor of %d bytes; the log allows %d", p.Position, len(p.Cursor), f.Limits.Cursor)
		}
	}
	if m.Hint != nil && (m.Hint.Before(m.Floor) || m.Hint.Offset < m.Floor.Offset) {
		return document.Corrupt(key, "the hint %v at offset %d lies before the floor %v at %d", m.Hint.Position, m.Hint.Offset, m.Floor.Position, m.Floor.Offset)
	}
	return nil
}

// names are the keys of the objects that a manifest names itself, not in a page.
type names map[string]bool

func (n names) add(key string) error {
	if n[key] {
		return fmt.Errorf("%s is there twice", key)
	}
	n[key] = true
	return nil
}

// checkRun checks that pages and inline entries make one run without gaps. Follows says
// whether something that begins at one place can come directly after what ends at another.
func checkRun[E any, B uint64 | string](li *list[E, B], pages []Page[B], inline []E, named names, follows func(end, begin B) bool) error {
	var end *B
	for i := range pages {
		p := &pages[i]
		_, _, ok := layout.ParseListKey(p.Key)
		switch {
		case !ok:
			return fmt.Errorf("page %q of %s has no name of a page", p.Key, li.name)
		case p.Count < 1 || p.Size < 1 || p.Size > fence.MaxManifest || p.Count > layout.MaxElements(int(p.Size)) || p.From > p.To:
			return fmt.Errorf("page %s of %s has %d entries in %d bytes, from %v to %v", p.Key, li.name, p.Count, p.Size, p.From, p.To)
		case end != nil && !follows(*end, p.From):
			return fmt.Errorf("page %s of %s begins at %v, the one before it ends at %v", p.Key, li.name, p.From, *end)
		}
		if err := named.add(p.Key); err != nil {
			return err
		}
		end = &p.To
	}
	var prev *E
	for i := range inline {
		e := &inline[i]
		if err := li.check(prev, e); err != nil {
			return err
		}
		if i == 0 && end != nil && !follows(*end, li.from(e)) {
			return fmt.Errorf("%s begin at %v, the pages end at %v", li.name, li.from(e), *end)
		}
		prev = e
	}
	return nil
}

func same(end, begin uint64) bool { return end == begin }

// span returns where a run begins and ends; none is empty.
func span[E any, B uint64 | string](li *list[E, B], pages []Page[B], inline []E) (begin, end B, some bool) {
	switch n, k := len(pages), len(inline); {
	case n > 0 && k > 0:
		return pages[0].From, li.to(&inline[k-1]), true
	case n > 0:
		return pages[0].From, pages[n-1].To, true
	case k > 0:
		return li.from(&inline[0]), li.to(&inline[k-1]), true
	}
	return begin, end, false
}

func checkSegment(prev, s *Segment) error {
	_, _, ok := layout.ParseSegmentKey(s.Key)
	switch {
	case !ok:
		return fmt.Errorf("segment %q has no name of a segment", s.Key)
	case s.First >= s.End || s.Index <= 0 || s.Size < s.Index:
		return fmt.Errorf("segment %s holds [%d, %d) in %d bytes with an index of %d", s.Key, s.First, s.End, s.Size, s.Index)
	case prev != nil && prev.End != s.First:
		return fmt.Errorf("segment %s begins at %d, the one before it ends at %d", s.Key, s.First, prev.End)
	}
	return nil
}

func (m *Manifest) checkSegments(named names) error {
	for i := range m.Segments {
		if err := named.add(m.Segments[i].Key); err != nil {
			return err
		}
	}
	if err := checkRun(&segmentList, m.SegmentPages, m.Segments, named, same); err != nil {
		return err
	}
	begin, end, some := span(&segmentList, m.SegmentPages, m.Segments)
	if !some {
		begin, end = m.Floor.Offset, m.Floor.Offset
	}
	switch {
	case end != m.Floor.Offset:
		return fmt.Errorf("the segments end at %d, the floor is at %d", end, m.Floor.Offset)
	case m.Start > m.Floor.Offset || begin > m.Start:
		// guard:promised-start. A manifest is refused if its segments begin after start, or if start is
		// after the floor.
		return fmt.Errorf("the segments begin at %d and the floor is at %d; the log promises its records from %d on", begin, m.Floor.Offset, m.Start)
	}
	return nil
}

func checkSeal(prev, s *Seal) error {
	if prev == nil {
		prev = &Seal{Next: s.Position.Epoch}
	}
	if s.Position.Epoch != prev.Next || s.Next <= s.Position.Epoch || s.Position.Seq == 0 || s.Offset < prev.Offset {
		return fmt.Errorf("the seal at %v and offset %d names epoch %d; the one before it names epoch %d at %d", s.Position, s.Offset, s.Next, prev.Next, prev.Offset)
	}
	return nil
}

func (m *Manifest) checkSeals(named names) error {
	if err := checkRun(&sealList, m.SealPages, m.Seals, named, same); err != nil {
		return err
	}
	begin, end, _ := span(&sealList, m.SealPages, m.Seals)
	if begin != 0 || fence.Epoch(end) != m.Floor.Position.Epoch {
		return fmt.Errorf("the seals lead from epoch %d to epoch %d; the floor is at %v", begin, end, m.Floor.Position)
	}
	if n := len(m.Seals); n > 0 && m.Seals[n-1].Offset > m.Floor.Offset {
		return fmt.Errorf("the seals lead to offset %d; the floor is at %d", m.Seals[n-1].Offset, m.Floor.Offset)
	}
	return nil
}

func checkFile(prev, f *manifest.File) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if prev != nil && prev.Key >= f.Key {
		return fmt.Errorf("file %s comes after %s", f.Key, prev.Key)
	}
	return nil
}

func (m *Manifest) checkTable(named names) error {
	t := &m.Table
	if err := layout.CheckTexts("the properties", t.Properties, manifest.MaxProperties); err != nil {
		return err
	}
	if t.EditedAt > m.Floor.Offset {
		return fmt.Errorf("the last edit lies at offset %d; the floor is at %d", t.EditedAt, m.Floor.Offset)
	}
	if err := checkRun(&fileList, t.FilePages, nil, named, func(end, begin string) bool { return end < begin }); err != nil {
		return err
	}
	if err := checkRun(&fileList, nil, t.Files, named, nil); err != nil {
		return err
	}
	for i := range t.Files {
		if err := named.add(t.Files[i].Key); err != nil {
			return err
		}
		if epoch, _, _, _ := layout.ParseFileKey(t.Files[i].Key); epoch > m.Floor.Position.Epoch {
			return fmt.Errorf("file %s is of an epoch that is not folded", t.Files[i].Key)
		}
	}
	if err := checkRun(&removedList, t.RemovedPages, nil, named, func(end, begin string) bool { return end < begin }); err != nil {
		return err
	}
	if err := checkRun(&removedList, nil, t.Removed, named, nil); err != nil {
		return err
	}
	for _, key := range t.Removed {
		switch {
		case named[key]:
			return fmt.Errorf("file %s is removed and live", key)
		case pageOf(t.FilePages, key) < 0:
			return fmt.Errorf("removed file %s is in no page", key)
		}
	}
	return nil
}

func checkRemoved(prev, key *string) error {
	if _, _, _, ok := layout.ParseFileKey(*key); !ok {
		return fmt.Errorf("removed file %q has no name of a file", *key)
	}
	if prev != nil && *prev >= *key {
		return fmt.Errorf("removed file %s comes after %s", *key, *prev)
	}
	return nil
}

func checkDropped(prev, d *Dropped) error {
	_, _, segment := layout.ParseSegmentKey(d.Key)
	_, _, page := layout.ParseListKey(d.Key)
	_, _, _, file := layout.ParseFileKey(d.Key)
	switch {
	case !segment && !page && !file:
		// guard:dropped-own. A manifest's list of dropped objects names only segments, pages and files,
		// because compactors delete what the list names.
		return fmt.Errorf("dropped object %q is neither segment nor page nor file", d.Key)
	case d.Version == 0:
		return errors.New("object " + d.Key + " was dropped by version 0")
	case prev != nil && prev.Version > d.Version:
		return fmt.Errorf("object %s was dropped by version %d, the one before it by %d", d.Key, d.Version, prev.Version)
	}
	return nil
}

func (m *Manifest) checkDropped(named names) error {
	if err := checkRun(&droppedList, m.DroppedPages, m.Dropped, named, func(end, begin uint64) bool { return end <= begin }); err != nil {
		return err
	}
	if _, end, some := span(&droppedList, m.DroppedPages, m.Dropped); some && end > m.Version {
		return fmt.Errorf("objects were dropped by version %d", end)
	}
	for _, d := range m.Dropped {
		// guard:dropped-live. A manifest is refused if its list of dropped objects has an object that
		// the same manifest still uses.
		if named[d.Key] {
			return fmt.Errorf("object %s was dropped by version %d, and is named", d.Key, d.Version)
		}
	}
	return nil
}
