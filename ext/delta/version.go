package delta

import "slices"

// part is what one version does for one source.
type part struct {
	*work
	step
	hold Hold
}

// names reports whether the version names the pin that the publisher has taken for it.
func (w *part) names() bool { return w.pin.Key != "" && w.hold.Manifest == w.pin.Version }

// versions returns the parts of each version to be created.
func (p *pub) versions(todo []*work) [][]part {
	count := 0
	for _, w := range todo {
		count += len(w.steps)
	}
	var all [][]part
	for _, w := range todo {
		steps := w.steps
		if count > p.most {
			steps = runs(steps)
		}
		_, old, known := p.state.Source(w.log)
		for i, st := range steps {
			h := Hold{Manifest: w.pin.Version, Held: w.pin.Created.UnixMilli()}
			// guard:delta-run-holds. If a publisher creates several Delta versions of a log in a row,
			// only the last names the newly pinned manifest; the others name the old one.
			//
			//mutant:replace i < len(steps)-1 && known => i < 0 && known
			if w.pin.Key == "" || i < len(steps)-1 && known {
				h = Hold{Manifest: old.Manifest, Held: old.Held}
			}
			h.Epoch, h.Slot, h.Opened = uint64(st.place.Slot.Epoch), st.place.Slot.Seq, st.place.Opened
			switch {
			case count <= p.most:
				all = append(all, []part{{w, st, h}})
			case i < len(all): // those of other sources share the version
				all[i] = append(all[i], part{w, st, h})
			default:
				all = append(all, []part{{w, st, h}})
			}
		}
	}
	return all
}

// runs merges steps into as few as there can be.
//
// guard:delta-rewrite-run. A Delta version ends before an edit that replaces files if some of these
// were in the table before this version, and others were not.
//
//mutant:replace old && fresh => old && fresh && false
func runs(steps []step) (all []step) {
	first := 0
	added, copies := map[string]bool{}, map[string]bool{} // of this run; copies have rows that were active before it
	for i := 0; i < len(steps); i++ {
		cut := false
		for _, f := range steps[i].add {
			list, _ := f.Replaces() // none: an entry of the same name that means something else
			old, fresh := false, false
			for _, key := range list {
				old, fresh = old || !added[key] || copies[key], fresh || added[key]
			}
			cut = cut || old && fresh
			copies[f.Key] = old
		}
		if cut {
			all = append(all, merge(steps[first:i]))
			clear(added)
			clear(copies)
			first = i
			i-- // look at this step again: nothing of its own run comes before it
			continue
		}
		for _, f := range steps[i].add {
			added[f.Key] = true
		}
	}
	return append(all, merge(steps[first:]))
}

// change returns what one version does for one source.
func (p *pub) change(w part) Part {
	rewrites := p.rewrites(w)
	replaced := map[string]bool{}
	c := Part{Log: w.log, Name: w.name, Edits: w.step.edits, Offset: w.offset, Hold: w.hold}
	for _, f := range w.add {
		values := map[string]*string{}
		for _, name := range p.state.Meta().Partition {
			values[name] = nil
			if v := f.Meta[name]; v != "" { // for engines an empty value is null
				values[name] = &v
			}
		}
		for _, key := range rewrites[f.Key] {
			replaced[key] = true
		}
		c.Add = append(c.Add, Added{Path: w.path(f.Key), File: f, Partition: values, Footer: w.footers[f.Key], Rewrite: rewrites[f.Key] != nil})
	}
	for _, key := range w.step.remove {
		c.Remove = append(c.Remove, Removed{Path: w.path(key), Rewrite: replaced[key]})
	}
	return c
}

// rewrites returns the files of a step that bring no new rows, with those that they replace.
func (p *pub) rewrites(w part) map[string][]string {
	all := map[string][]string{}
	for _, f := range w.add {
		list, err := f.Replaces()
		if err != nil {
			continue // an entry of the same name that means something else
		}
		stranger := func(key string) bool {
			_, active := p.state.Owner(w.path(key))
			return !active || !slices.Contains(w.step.remove, key)
		}
		// guard:delta-rewrite. A rewritten file is marked as no change of data only if the Delta
		// version removes all files that it replaces, and these were active before.
		//
		//mutant:replace !slices.ContainsFunc(list, stranger) => (true || stranger(""))
		if len(list) > 0 && !slices.ContainsFunc(list, stranger) {
			all[f.Key] = list
		}
	}
	return all
}
